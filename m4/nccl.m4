dnl SPDX-License-Identifier: Apache-2.0
# PETRA_NCCL: NVIDIA's communication library, for messages between the GPUs of a run on several processes: of use only with
# CUDA and MPI, so that it is looked for where both were found. Sets NCCL_CPPFLAGS, NCCL_LIBS and the conditional HAVE_NCCL; its
# folder joins CUDA_RPATH.
AC_DEFUN([PETRA_NCCL], [
  AC_REQUIRE([PETRA_CUDA])
  AC_REQUIRE([PETRA_MPI])
  PETRA_OPTIONAL([nccl], [NCCL])
  petra_have_nccl=no NCCL_CPPFLAGS= NCCL_LIBS=
  AS_IF([test "x$petra_want_nccl" != xno], [
    AS_IF([test -n "$petra_dir_nccl"], [petra_nccl_dirs=$petra_dir_nccl], [petra_nccl_dirs="$petra_found_cuda /usr/local /usr"])
    petra_save_CPPFLAGS=$CPPFLAGS
    petra_save_LIBS=$LIBS
    AS_IF([test "x$petra_have_cuda" = xyes && test "x$petra_have_mpi" = xyes], [
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
            [[ncclConfig_t config = NCCL_CONFIG_INITIALIZER; ncclComm_t comm;
              ncclUniqueId id = {{0}}; return ncclCommInitRankConfig(&comm, 2, id, 0, &config) != ncclSuccess || config.maxCTAs;]])],
            [petra_have_nccl=yes; petra_found_nccl=$petra_nccl_dir; petra_lib_nccl=$petra_nccl_dir/$petra_nccl_lib])
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
      [NVIDIA's libnccl-dev, 2.18 or newer; it needs CUDA and MPI])
  ])
  AS_IF([test "x$petra_have_nccl" = xyes], [
    petra_report_nccl="$petra_nccl_major.$petra_nccl_minor.$petra_nccl_patch in $petra_found_nccl"
    AS_CASE([" $CUDA_CPPFLAGS "], [*" $petra_found_nccl/include "*], [],
      [test "$petra_found_nccl" = /usr || NCCL_CPPFLAGS="-isystem $petra_found_nccl/include"])
    # A program that calls none of it need not load it.
    NCCL_LIBS="-Wl,--push-state,--as-needed -L$petra_lib_nccl -lnccl -Wl,--pop-state"
    AS_CASE(["$petra_lib_nccl: $CUDA_RPATH "],
      [/usr/lib:*|/usr/lib64:*|/usr/lib/x86_64-linux-gnu:*|*"-rpath,$petra_lib_nccl "*], [],
      [CUDA_RPATH="${CUDA_RPATH:+$CUDA_RPATH }-Wl,-rpath,$petra_lib_nccl"
       CUDA_LIBRARY_PATH="${CUDA_LIBRARY_PATH:+$CUDA_LIBRARY_PATH:}$petra_lib_nccl"])
    petra_modes="emulate, execute (MPI, NCCL)"
    AC_DEFINE([PETRA_HAVE_NCCL], [1], [messages between GPUs go by NCCL])])
  AC_SUBST([NCCL_CPPFLAGS])
  AC_SUBST([NCCL_LIBS])
  AM_CONDITIONAL([HAVE_NCCL], [test "x$petra_have_nccl" = xyes])
])
