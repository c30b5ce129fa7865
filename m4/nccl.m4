# PETRA_NCCL: NVIDIA's collectives. Its header includes CUDA's, so that it is looked for only where CUDA was found.
AC_DEFUN([PETRA_NCCL], [
  AC_REQUIRE([PETRA_CUDA])
  PETRA_OPTIONAL([nccl], [NCCL])
  petra_have_nccl=no
  AS_IF([test "x$petra_want_nccl" != xno], [
    AS_IF([test -n "$petra_dir_nccl"], [petra_nccl_dirs=$petra_dir_nccl], [petra_nccl_dirs="$petra_found_cuda /usr/local /usr"])
    petra_save_CPPFLAGS=$CPPFLAGS
    petra_save_LIBS=$LIBS
    AS_IF([test "x$petra_have_cuda" = xyes], [
      for petra_nccl_dir in $petra_nccl_dirs; do
        test -f "$petra_nccl_dir/include/nccl.h" || continue
        for petra_nccl_lib in lib64 lib lib/x86_64-linux-gnu; do
          test "x$petra_have_nccl" = xno || continue
          test -d "$petra_nccl_dir/$petra_nccl_lib" || continue
          CPPFLAGS="-I$petra_nccl_dir/include -I$petra_found_cuda/include $petra_save_CPPFLAGS"
          # NCCL's own needs (the CUDA run time) are its business at link time of a program that uses it.
          LIBS="-L$petra_nccl_dir/$petra_nccl_lib -lnccl -Wl,--allow-shlib-undefined $petra_save_LIBS"
          AC_MSG_CHECKING([for NCCL in $petra_nccl_dir/$petra_nccl_lib])
          AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>]],
            [[int version; return ncclGetVersion(&version) != ncclSuccess;]])],
            [petra_have_nccl=yes; petra_found_nccl=$petra_nccl_dir])
          AC_MSG_RESULT([$petra_have_nccl])
        done
        test "x$petra_have_nccl" = xno || break
      done
      AS_IF([test "x$petra_have_nccl" = xyes], [
        CPPFLAGS="-I$petra_found_nccl/include -I$petra_found_cuda/include $petra_save_CPPFLAGS"
        PETRA_HEADER_NUMBER([petra_nccl_major], [NCCL_MAJOR], [#include <nccl.h>])
        PETRA_HEADER_NUMBER([petra_nccl_minor], [NCCL_MINOR], [#include <nccl.h>])
        PETRA_HEADER_NUMBER([petra_nccl_patch], [NCCL_PATCH], [#include <nccl.h>])])])
    CPPFLAGS=$petra_save_CPPFLAGS
    LIBS=$petra_save_LIBS
    PETRA_OPTIONAL_RESULT([nccl], [NCCL], [$petra_nccl_major.$petra_nccl_minor.$petra_nccl_patch], [$petra_found_nccl],
      [NVIDIA's libnccl-dev; it needs CUDA])
  ])
])
