dnl SPDX-License-Identifier: Apache-2.0
# PETRA_LIBRARIES: the small required libraries, by pkg-config where they have a file.
AC_DEFUN([PETRA_LIBRARIES], [
  PETRA_PKG([YAML], [yaml-0.1], [libyaml], [libyaml-dev])
  PETRA_PKG([JANSSON], [jansson], [Jansson], [libjansson-dev])
  PETRA_PKG([XXHASH], [libxxhash], [xxHash], [libxxhash-dev])
  AC_CHECK_HEADERS([Random123/philox.h], [], [PETRA_MISSING([Random123], [librandom123-dev])])
  AC_SEARCH_LIBS([dlsym], [dl], [], [PETRA_MISSING([dlsym], [libc6-dev])])
  AC_SEARCH_LIBS([pthread_create], [pthread], [], [PETRA_MISSING([POSIX threads], [libc6-dev])])

  # pkg-config's -lgslcblas would capture cblas_* from the real CBLAS, so GSL is linked alone.
  AC_CHECK_HEADER([gsl/gsl_version.h], [petra_have_gsl=yes], [petra_have_gsl=no])
  AC_CHECK_LIB([gsl], [gsl_linalg_QR_decomp_r], [GSL_LIBS="-lgsl -lm"], [petra_have_gsl=no], [-lgslcblas -lm])
  AS_IF([test "x$petra_have_gsl" = xyes], [
    PETRA_HEADER_NUMBER([petra_gsl_major], [GSL_MAJOR_VERSION], [#include <gsl/gsl_version.h>])
    PETRA_HEADER_NUMBER([petra_gsl_minor], [GSL_MINOR_VERSION], [#include <gsl/gsl_version.h>])
    petra_version_GSL=$petra_gsl_major.$petra_gsl_minor],
    [PETRA_MISSING([GSL 2.7], [libgsl-dev])])
  AC_SUBST([GSL_LIBS])
])

# PETRA_CHECK: the unit-test library. The program builds without it; the tests then stop at a line that names it.
AC_DEFUN([PETRA_CHECK], [
  PKG_CHECK_MODULES([CHECK], [check >= 0.15],
    [have_check=yes
     petra_version_CHECK=`$PKG_CONFIG --modversion check 2>/dev/null`],
    [have_check=no
     CHECK_CFLAGS=-DPETRA_NO_CHECK
     CHECK_LIBS=])
  AM_CONDITIONAL([HAVE_CHECK], [test "x$have_check" = xyes])
])
