dnl SPDX-License-Identifier: Apache-2.0
# PETRA_OPENMP: the OpenMP run time whose threads oneDNN uses; the number of compute threads is set through it. With --disable-openmp
# operations compute by one thread, and loops are vectorised as they are with it; what only a pragma reads is unused there.
AC_DEFUN([PETRA_OPENMP], [
  AC_OPENMP
  AS_CASE([$ac_cv_prog_c_openmp],
    [unsupported|'not found'], [
      AS_CASE([$CC], [*clang*], [petra_openmp_package=libomp-dev], [petra_openmp_package=gcc])
      PETRA_MISSING([OpenMP in the C compiler ($CC), or --disable-openmp], [$petra_openmp_package])])
  petra_version_OPENMP=$OPENMP_CFLAGS
  AS_IF([test "x$enable_openmp" = xno],
    [petra_version_OPENMP="no: operations compute by one thread"
     petra_save_CFLAGS=$CFLAGS
     petra_flags="-fopenmp-simd -Wno-unknown-pragmas -Wno-unused-parameter -Wno-unused-variable -Wno-unused-function"
     CFLAGS="$CFLAGS $petra_flags"
     AC_MSG_CHECKING([whether $CC takes -fopenmp-simd])
     AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
       [AC_MSG_RESULT([yes]); OPENMP_CFLAGS=$petra_flags], [AC_MSG_RESULT([no])])
     CFLAGS=$petra_save_CFLAGS])
])
