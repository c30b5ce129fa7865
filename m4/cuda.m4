# PETRA_CUDA: optional.
AC_DEFUN([PETRA_CUDA], [])
