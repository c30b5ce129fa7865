dnl SPDX-License-Identifier: Apache-2.0
# PETRA_MISSING(WHAT, DEBIAN-PACKAGE): notes a required library that was not found, so that all of them are reported
# together at the end and one run of configure is enough to know what to install.
AC_DEFUN([PETRA_MISSING], [
  petra_missing="${petra_missing:+$petra_missing, }$1"
  petra_missing_packages="${petra_missing_packages:+$petra_missing_packages }$2"
])

# PETRA_REQUIRE: ends configure with one line if anything was noted.
AC_DEFUN([PETRA_REQUIRE], [
  AS_IF([test -n "$petra_missing"], [
    AC_MSG_ERROR([required and not found: $petra_missing. On Debian: apt-get install $petra_missing_packages])])
])

# PETRA_PKG(PREFIX, MODULE, WHAT, DEBIAN-PACKAGE): a required library that has a pkg-config file. Sets PREFIX_CFLAGS,
# PREFIX_LIBS and petra_version_PREFIX.
AC_DEFUN([PETRA_PKG], [
  PKG_CHECK_MODULES([$1], [$2],
    [petra_version_$1=`$PKG_CONFIG --modversion "$2" 2>/dev/null | sed 1q`],
    [PETRA_MISSING([$3], [$4])])
])

# PETRA_HEADER_NUMBER(VARIABLE, EXPRESSION, INCLUDES): the value of an integer expression of the preprocessor, found
# without running anything; "?" where it cannot be had.
AC_DEFUN([PETRA_HEADER_NUMBER], [AC_COMPUTE_INT([$1], [$2], [$3], [$1=?])])
