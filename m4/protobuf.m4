dnl SPDX-License-Identifier: Apache-2.0
# PETRA_PROTOBUF: protobuf-c, with its compiler protoc-c, which petra simulate --chakra needs. Optional: without it src/record/chakra_none.c
# is built in place of src/record/chakra_file.c, and the option ends in an error that says so.
AC_DEFUN([PETRA_PROTOBUF], [
  PETRA_OPTIONAL([protobuf], [protobuf-c])
  petra_have_protobuf=no
  petra_protobuf_where="its pkg-config file"
  AS_IF([test "x$petra_want_protobuf" != xno], [
    AS_IF([test -n "$petra_dir_protobuf"],
      [PROTOBUF_CFLAGS="-I$petra_dir_protobuf/include"
       PROTOBUF_LIBS="-L$petra_dir_protobuf/lib -lprotobuf-c"
       petra_protobuf_where=$petra_dir_protobuf
       petra_have_protobuf=yes],
      [PKG_CHECK_MODULES([PROTOBUF], [libprotobuf-c >= 1.3], [petra_have_protobuf=yes], [petra_have_protobuf=no])])
    AC_PATH_PROG([PROTOC_C], [protoc-c], [], [${petra_dir_protobuf:+$petra_dir_protobuf/bin:}$PATH])
    AS_IF([test -z "$PROTOC_C"], [petra_have_protobuf=no])
    AS_IF([test "x$petra_have_protobuf" = xyes], [
      petra_save_CPPFLAGS=$CPPFLAGS
      petra_save_LIBS=$LIBS
      CPPFLAGS="$CPPFLAGS $PROTOBUF_CFLAGS"
      LIBS="$PROTOBUF_LIBS $LIBS"
      AC_MSG_CHECKING([whether protobuf-c can be linked])
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <protobuf-c/protobuf-c.h>]],
        [[return protobuf_c_version_number() < PROTOBUF_C_MIN_COMPILER_VERSION;]])], [], [petra_have_protobuf=no])
      AC_MSG_RESULT([$petra_have_protobuf])
      petra_version_protobuf=`"$PROTOC_C" --version | sed -n 's/^protobuf-c //p'`
      CPPFLAGS=$petra_save_CPPFLAGS
      LIBS=$petra_save_LIBS])
    PETRA_OPTIONAL_RESULT([protobuf], [protobuf-c], [${petra_version_protobuf:-?}], [$petra_protobuf_where],
      [libprotobuf-c-dev protobuf-c-compiler])
  ])
  AS_IF([test "x$petra_have_protobuf" = xyes],
    [petra_report_protobuf="${petra_version_protobuf:-found} (petra simulate --chakra)"],
    [PROTOBUF_CFLAGS=
     PROTOBUF_LIBS=])
  AC_SUBST([PROTOBUF_CFLAGS])
  AC_SUBST([PROTOBUF_LIBS])
  AM_CONDITIONAL([HAVE_PROTOBUF], [test "x$petra_have_protobuf" = xyes])
])
