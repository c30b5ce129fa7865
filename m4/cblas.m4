# PETRA_CBLAS: a CBLAS with cblas_sgemm; OpenBLAS first.
AC_DEFUN([PETRA_CBLAS], [
  PKG_CHECK_MODULES([CBLAS], [openblas], [], [
    AC_CHECK_LIB([openblas], [cblas_sgemm], [CBLAS_LIBS="-lopenblas"], [
      AC_CHECK_LIB([cblas], [cblas_sgemm], [CBLAS_LIBS="-lcblas"], [AC_MSG_ERROR([no CBLAS found (Debian: libopenblas-dev)])])])])
  AC_SUBST([CBLAS_CFLAGS])
  AC_SUBST([CBLAS_LIBS])
  petra_save_LIBS=$LIBS
  LIBS="$CBLAS_LIBS $LIBS"
  AC_CHECK_FUNCS([openblas_set_num_threads])
  LIBS=$petra_save_LIBS
])
