# PETRA_OPENMP: the OpenMP run time whose threads oneDNN uses; the number of compute threads is set through it.
AC_DEFUN([PETRA_OPENMP], [
  AC_OPENMP
  AS_IF([test "x$ac_cv_prog_c_openmp" = xunsupported], [AC_MSG_ERROR([the C compiler has no OpenMP])])
])
