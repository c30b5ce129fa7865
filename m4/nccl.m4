# PETRA_NCCL: optional.
AC_DEFUN([PETRA_NCCL], [])
