dnl SPDX-License-Identifier: Apache-2.0
# PETRA_OPENMP: the OpenMP run time whose threads oneDNN uses; the number of compute threads is set through it.
AC_DEFUN([PETRA_OPENMP], [
  AC_OPENMP
  AS_CASE([$ac_cv_prog_c_openmp],
    [unsupported|'not found'], [
      AS_CASE([$CC], [*clang*], [petra_openmp_package=libomp-dev], [petra_openmp_package=gcc])
      PETRA_MISSING([OpenMP in the C compiler ($CC)], [$petra_openmp_package])])
])
