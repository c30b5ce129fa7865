dnl SPDX-License-Identifier: Apache-2.0
# PETRA_ONEDNN: oneDNN, which has no pkg-config file on Debian.
AC_DEFUN([PETRA_ONEDNN], [
  AC_CHECK_HEADERS([oneapi/dnnl/dnnl.h], [petra_have_dnnl=yes], [petra_have_dnnl=no])
  AC_CHECK_LIB([dnnl], [dnnl_engine_create], [DNNL_LIBS="-ldnnl"], [petra_have_dnnl=no])
  AS_IF([test "x$petra_have_dnnl" = xyes], [
    PETRA_HEADER_NUMBER([petra_dnnl_major], [DNNL_VERSION_MAJOR], [#include <oneapi/dnnl/dnnl_version.h>])
    PETRA_HEADER_NUMBER([petra_dnnl_minor], [DNNL_VERSION_MINOR], [#include <oneapi/dnnl/dnnl_version.h>])
    PETRA_HEADER_NUMBER([petra_dnnl_patch], [DNNL_VERSION_PATCH], [#include <oneapi/dnnl/dnnl_version.h>])
    petra_version_DNNL=$petra_dnnl_major.$petra_dnnl_minor.$petra_dnnl_patch],
    [PETRA_MISSING([oneDNN], [libdnnl-dev])])
  AC_SUBST([DNNL_LIBS])
])
