dnl SPDX-License-Identifier: Apache-2.0
# PETRA_WARNINGS: the warnings that the project keeps free of, --enable-werror and --enable-sanitizers for continuous
# integration. AM_CFLAGS is given to the linker as well, which the sanitizers need.
AC_DEFUN([PETRA_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [turn compiler warnings into errors])], [], [enable_werror=no])
  AC_ARG_ENABLE([sanitizers], [AS_HELP_STRING([--enable-sanitizers],
    [build with the address and the undefined-behaviour sanitizer; any report ends the program])], [], [enable_sanitizers=no])
  PETRA_CFLAGS="-std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla"
  AS_IF([test "x$enable_werror" != xno], [PETRA_CFLAGS="$PETRA_CFLAGS -Werror"])
  AS_IF([test "x$enable_sanitizers" != xno], [
    petra_sanitize="-fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all"
    petra_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $petra_sanitize"
    AC_MSG_CHECKING([whether $CC links with the sanitizers])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([--enable-sanitizers: $CC cannot link with $petra_sanitize (Debian: gcc brings libasan and libubsan, clang needs libclang-rt-dev)])])
    CFLAGS=$petra_save_CFLAGS
    PETRA_CFLAGS="$PETRA_CFLAGS $petra_sanitize"])
  # For the loops of src/backend/ref* and cpu/kernels*, which take most of the tests' time: the address sanitizer checks every access; checks of
  # the arithmetic that leads to it, and of pointers for null and alignment, double the time and see nothing but what that one sees.
  SANITIZED_LOOPS_CFLAGS=
  AS_IF([test "x$enable_sanitizers" != xno],
    [SANITIZED_LOOPS_CFLAGS="-O2 -fno-sanitize=null,alignment,pointer-overflow,object-size"])
  AC_SUBST([SANITIZED_LOOPS_CFLAGS])
  # Undefined behaviour ends the program at once, without a library: for what has to be clean of it in every build (tests/cuda_host).
  UNDEFINED_TRAPS_CFLAGS=
  AS_IF([test "x$enable_sanitizers" = xno], [
    petra_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -fsanitize=undefined -fsanitize-undefined-trap-on-error"
    AC_MSG_CHECKING([whether $CC can trap undefined behaviour])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
      [AC_MSG_RESULT([yes])
       UNDEFINED_TRAPS_CFLAGS="-fsanitize=undefined -fsanitize-undefined-trap-on-error"],
      [AC_MSG_RESULT([no])])
    CFLAGS=$petra_save_CFLAGS])
  AC_SUBST([UNDEFINED_TRAPS_CFLAGS])
  AC_SUBST([PETRA_CFLAGS])
])
