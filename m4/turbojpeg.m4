dnl SPDX-License-Identifier: Apache-2.0
# PETRA_TURBOJPEG: libjpeg-turbo, through its libjpeg interface, which decodes the images of data.set: imagefolder. Optional: without
# it src/data/jpeg.c has no decoder, and that data set ends in an error that says so.
AC_DEFUN([PETRA_TURBOJPEG], [
  PETRA_OPTIONAL([turbojpeg], [libjpeg-turbo])
  petra_have_turbojpeg=no
  petra_turbojpeg_where="its pkg-config file"
  AS_IF([test "x$petra_want_turbojpeg" != xno], [
    AS_IF([test -n "$petra_dir_turbojpeg"],
      [TURBOJPEG_CFLAGS="-I$petra_dir_turbojpeg/include"
       TURBOJPEG_LIBS="-L$petra_dir_turbojpeg/lib -ljpeg"
       petra_turbojpeg_where=$petra_dir_turbojpeg
       petra_version_turbojpeg=`sed -n 's/^Version: *//p' "$petra_dir_turbojpeg/lib/pkgconfig/libjpeg.pc" 2>/dev/null`
       petra_have_turbojpeg=yes],
      [PKG_CHECK_MODULES([TURBOJPEG], [libjpeg >= 2.0],
        [petra_have_turbojpeg=yes
         petra_version_turbojpeg=`$PKG_CONFIG --modversion libjpeg`], [petra_have_turbojpeg=no])])
    AS_IF([test "x$petra_have_turbojpeg" = xyes], [
      petra_save_CPPFLAGS=$CPPFLAGS
      petra_save_LIBS=$LIBS
      CPPFLAGS="$CPPFLAGS $TURBOJPEG_CFLAGS"
      LIBS="$TURBOJPEG_LIBS $LIBS"
      AC_MSG_CHECKING([whether libjpeg is libjpeg-turbo and can be linked])
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>]], [[struct jpeg_error_mgr errors; return jpeg_std_error(&errors) == 0 || JCS_EXT_RGB == 0;]])],
        [], [petra_have_turbojpeg=no])
      AC_MSG_RESULT([$petra_have_turbojpeg])
      CPPFLAGS=$petra_save_CPPFLAGS
      LIBS=$petra_save_LIBS])
    PETRA_OPTIONAL_RESULT([turbojpeg], [libjpeg-turbo], [${petra_version_turbojpeg:-?}], [$petra_turbojpeg_where],
      [libjpeg-dev])
  ])
  AS_IF([test "x$petra_have_turbojpeg" = xyes],
    [petra_report_turbojpeg="${petra_version_turbojpeg:-found} (data.set: imagefolder)"
     AC_DEFINE_UNQUOTED([PETRA_TURBOJPEG_VERSION], ["${petra_version_turbojpeg:-?}"], [version of libjpeg-turbo])],
    [TURBOJPEG_CFLAGS=
     TURBOJPEG_LIBS=])
  AC_SUBST([TURBOJPEG_CFLAGS])
  AC_SUBST([TURBOJPEG_LIBS])
])
