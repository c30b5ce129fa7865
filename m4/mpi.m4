# PETRA_MPI: optional.
AC_DEFUN([PETRA_MPI], [])
