# PETRA_WARNINGS: the warnings that the project keeps free of, and --enable-werror for continuous integration.
AC_DEFUN([PETRA_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [turn compiler warnings into errors])], [], [enable_werror=no])
  PETRA_CFLAGS="-std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla"
  AS_IF([test "x$enable_werror" = xyes], [PETRA_CFLAGS="$PETRA_CFLAGS -Werror"])
  AC_SUBST([PETRA_CFLAGS])
])
