dnl SPDX-License-Identifier: Apache-2.0
# PETRA_CBLAS: a CBLAS with cblas_sgemm; OpenBLAS first.
AC_DEFUN([PETRA_CBLAS], [
  petra_have_cblas=no
  PKG_CHECK_MODULES([CBLAS], [openblas],
    [petra_have_cblas=yes
     petra_version_CBLAS="OpenBLAS `$PKG_CONFIG --modversion openblas`"], [
    AC_CHECK_LIB([openblas], [cblas_sgemm],
      [petra_have_cblas=yes; CBLAS_LIBS="-lopenblas"; petra_version_CBLAS=OpenBLAS], [
      AC_CHECK_LIB([cblas], [cblas_sgemm],
        [petra_have_cblas=yes; CBLAS_LIBS="-lcblas"; petra_version_CBLAS="-lcblas"])])])
  AC_SUBST([CBLAS_CFLAGS])
  AC_SUBST([CBLAS_LIBS])
  petra_save_CPPFLAGS=$CPPFLAGS
  petra_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $CBLAS_CFLAGS"
  LIBS="$CBLAS_LIBS $LIBS"
  AS_IF([test "x$petra_have_cblas" = xyes],
    [AC_CHECK_HEADER([cblas.h], [], [petra_have_cblas=no])
     AC_CHECK_FUNCS([openblas_set_num_threads])])
  CPPFLAGS=$petra_save_CPPFLAGS
  LIBS=$petra_save_LIBS
  AS_IF([test "x$petra_have_cblas" = xno], [PETRA_MISSING([a CBLAS], [libopenblas-dev])])
])
