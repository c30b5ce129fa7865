dnl SPDX-License-Identifier: Apache-2.0
# PETRA_SUMMARY: what configure found and what it did not, after everything else.
AC_DEFUN([PETRA_SUMMARY], [
  petra_compiler=`$CC --version 2>/dev/null | sed 1q`
  AS_IF([test "x$have_check" = xyes], [petra_check_line=$petra_version_CHECK],
    [petra_check_line="not found: make check will not work (Debian: check)"])
  AS_IF([test "x$petra_have_cuda" = xyes], [petra_backends="ref, cpu, cuda"], [petra_backends="ref, cpu"])
  test "x$silent" = xyes || cat <<PETRA_END

petra $PACKAGE_VERSION

  compiler           $CC ($petra_compiler)
  CFLAGS             $CFLAGS
  project's flags    $PETRA_CFLAGS $OPENMP_CFLAGS
  install prefix     $prefix

  required libraries
    oneDNN           $petra_version_DNNL
    CBLAS            $petra_version_CBLAS
    HDF5             $petra_version_HDF5
    libyaml          $petra_version_YAML
    Jansson          $petra_version_JANSSON
    GSL              $petra_version_GSL
    xxHash           $petra_version_XXHASH
    Random123        found (headers only)
    OpenMP           $petra_version_OPENMP
  for make check
    Check            $petra_check_line
  optional libraries
    libjpeg-turbo    $petra_report_turbojpeg
    CUDA             $petra_report_cuda
    NCCL             $petra_report_nccl
    MPI              $petra_report_mpi
  Python             $petra_report_python
                     (for petra list, sweep, reach, report and other subcommands)
  make html          $petra_report_mkdocs

  backends           $petra_backends
  run modes          $petra_modes
  warnings as errors $enable_werror
  sanitizers         $enable_sanitizers

PETRA_END
])
