dnl SPDX-License-Identifier: Apache-2.0
# PETRA_OPTIONAL(NAME, WHAT): the option --with-NAME=auto|yes|no|DIR of an optional library. Sets petra_want_NAME
# (auto, yes, no) and petra_dir_NAME (empty unless a folder was given).
AC_DEFUN([PETRA_OPTIONAL], [
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1=auto|yes|no|DIR],
    [look for $2: if present (auto, the default), insist on it (yes), never (no), in a folder (DIR)])],
    [], [with_$1=auto])
  petra_dir_$1=
  AS_CASE([$with_$1],
    [auto|yes|no], [petra_want_$1=$with_$1],
    [/*], [petra_want_$1=yes; petra_dir_$1=$with_$1],
    [AC_MSG_ERROR([--with-$1=$with_$1: expected auto, yes, no or an absolute folder])])
  petra_report_$1="not looked for (--with-$1=no)"
])

# PETRA_OPTIONAL_RESULT(NAME, WHAT, VERSION, WHERE, DEBIAN-PACKAGE): what the summary says of it; an error if it was
# insisted on and petra_have_NAME is not yes.
AC_DEFUN([PETRA_OPTIONAL_RESULT], [
  AS_IF([test "x$petra_have_$1" = xyes],
    [petra_report_$1="$3 in $4; not used by this version"],
    [AS_IF([test "x$petra_want_$1" = xyes],
      [AC_MSG_ERROR([--with-$1=$with_$1: $2 was not found${petra_dir_$1:+ in $petra_dir_$1} ($5); drop the option, or give the folder that holds it])])
     petra_report_$1="not found ($5)"])
])
