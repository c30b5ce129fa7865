dnl SPDX-License-Identifier: Apache-2.0
# PETRA_MPI: an MPI library for C; that of the compiler $CC if it is a wrapper of one, else by pkg-config (Open MPI, MPICH), else by
# asking the compiler wrapper mpicc. Optional.
AC_DEFUN([PETRA_MPI], [
  PETRA_OPTIONAL([mpi], [an MPI library])
  petra_have_mpi=no
  AS_IF([test "x$petra_want_mpi" != xno], [
    petra_mpi_cflags= petra_mpi_libs= petra_mpi_version= petra_found_mpi= petra_mpi_candidate=no
    # A wrapper of MPI compiles everything with the headers of its own library: no other one may be linked.
    petra_mpi_wrapper=`$CC -show 2>/dev/null` || petra_mpi_wrapper=
    AS_IF([test -n "$petra_mpi_wrapper" && test -n "$petra_dir_mpi" &&
           test "x$petra_mpi_wrapper" != "x`$petra_dir_mpi/bin/mpicc -show 2>/dev/null`"],
      [AC_MSG_ERROR([CC=$CC compiles for an MPI library of its own, another than --with-mpi=$petra_dir_mpi; expected one of them])])
    AS_IF([test -n "$petra_mpi_wrapper"],
      [petra_mpicc=$CC],
      [test -n "$petra_dir_mpi"],
      [petra_mpicc=$petra_dir_mpi/bin/mpicc],
      [for petra_mpi_module in ompi-c mpich; do
         AS_IF([test "x$petra_mpi_candidate" = xno && $PKG_CONFIG --exists $petra_mpi_module], [
           petra_mpi_cflags=`$PKG_CONFIG --cflags $petra_mpi_module`
           petra_mpi_libs=`$PKG_CONFIG --libs $petra_mpi_module`
           petra_found_mpi="$petra_mpi_module `$PKG_CONFIG --modversion $petra_mpi_module`"
           petra_mpi_candidate=yes])
       done
       petra_mpicc=mpicc])
    AS_IF([test "x$petra_mpi_candidate" = xno && $petra_mpicc -show >/dev/null 2>&1], [
      # -show prints the compiler's command line; its first word is the compiler, the rest are its options.
      petra_mpi_libs=`$petra_mpicc -show | sed 's/^@<:@^ @:>@* *//'`
      petra_mpi_cflags=$petra_mpi_libs
      petra_found_mpi=$petra_mpicc
      petra_mpi_candidate=yes])
    AS_IF([test "x$petra_mpi_candidate" = xyes], [
      petra_save_CPPFLAGS=$CPPFLAGS
      petra_save_LIBS=$LIBS
      CPPFLAGS="$CPPFLAGS $petra_mpi_cflags"
      LIBS="$petra_mpi_libs $LIBS"
      AC_MSG_CHECKING([whether MPI links ($petra_found_mpi)])
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[return MPI_Init(0, 0);]])], [petra_have_mpi=yes])
      AC_MSG_RESULT([$petra_have_mpi])
      AS_IF([test "x$petra_have_mpi" = xyes], [
        PETRA_HEADER_NUMBER([petra_mpi_major], [MPI_VERSION], [#include <mpi.h>])
        PETRA_HEADER_NUMBER([petra_mpi_minor], [MPI_SUBVERSION], [#include <mpi.h>])
        petra_mpi_version=$petra_mpi_major.$petra_mpi_minor
        AC_CHECK_HEADER([mpi-ext.h], [AC_DEFINE([PETRA_HAVE_MPI_EXT], [1], [MPI has mpi-ext.h])], [], [#include <mpi.h>])
        AC_MSG_CHECKING([whether MPI tells if it takes memory of a CUDA device])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
#ifdef PETRA_HAVE_MPI_EXT
#include <mpi-ext.h>
#endif
]], [[return MPIX_Query_cuda_support();]])],
          [petra_mpi_cuda=yes
           AC_DEFINE([PETRA_HAVE_MPI_CUDA], [1], [MPI has MPIX_Query_cuda_support])], [petra_mpi_cuda=no])
        AC_MSG_RESULT([$petra_mpi_cuda])])
      CPPFLAGS=$petra_save_CPPFLAGS
      LIBS=$petra_save_LIBS])
    PETRA_OPTIONAL_RESULT([mpi], [an MPI library], [standard $petra_mpi_version], [$petra_found_mpi],
      [Debian: libopenmpi-dev])
  ])
  AS_IF([test "x$petra_have_mpi" = xyes], [
    MPI_CFLAGS=$petra_mpi_cflags
    MPI_LIBS=$petra_mpi_libs
    petra_report_mpi="standard $petra_mpi_version in $petra_found_mpi"
    petra_modes="emulate, execute (MPI)"],
    [petra_modes="emulate"])
  AC_SUBST([MPI_CFLAGS])
  AC_SUBST([MPI_LIBS])
  AM_CONDITIONAL([HAVE_MPI], [test "x$petra_have_mpi" = xyes])
])
