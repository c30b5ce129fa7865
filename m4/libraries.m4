# PETRA_LIBRARIES: the small required libraries, by pkg-config where they have a file.
AC_DEFUN([PETRA_LIBRARIES], [
  PKG_CHECK_MODULES([YAML], [yaml-0.1])
  PKG_CHECK_MODULES([JANSSON], [jansson])
  PKG_CHECK_MODULES([CHECK], [check >= 0.15], [have_check=yes], [have_check=no])
  AM_CONDITIONAL([HAVE_CHECK], [test "x$have_check" = xyes])
  AC_CHECK_HEADERS([Random123/philox.h], [], [AC_MSG_ERROR([Random123 is missing (Debian: librandom123-dev)])])
  AC_SEARCH_LIBS([pthread_create], [pthread])
  # pkg-config's -lgslcblas would capture cblas_* from the real CBLAS, so GSL is linked alone.
  AC_CHECK_LIB([gsl], [gsl_set_error_handler_off], [GSL_LIBS="-lgsl -lm"], [AC_MSG_ERROR([GSL is missing (Debian: libgsl-dev)])], [-lgslcblas -lm])
  AC_SUBST([GSL_LIBS])
])
