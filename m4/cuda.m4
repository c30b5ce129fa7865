# PETRA_CUDA: the CUDA run time (never libcuda, the driver, which a build machine need not have). Optional.
AC_DEFUN([PETRA_CUDA], [
  PETRA_OPTIONAL([cuda], [the CUDA run time])
  petra_have_cuda=no
  AS_IF([test "x$petra_want_cuda" != xno], [
    AS_IF([test -n "$petra_dir_cuda"], [petra_cuda_dirs=$petra_dir_cuda], [petra_cuda_dirs="/usr/local/cuda /opt/cuda /usr"])
    petra_save_CPPFLAGS=$CPPFLAGS
    petra_save_LIBS=$LIBS
    for petra_cuda_dir in $petra_cuda_dirs; do
      test -f "$petra_cuda_dir/include/cuda_runtime_api.h" || continue
      for petra_cuda_lib in lib64 lib targets/x86_64-linux/lib; do
        test "x$petra_have_cuda" = xno || continue
        test -d "$petra_cuda_dir/$petra_cuda_lib" || continue
        CPPFLAGS="-I$petra_cuda_dir/include $petra_save_CPPFLAGS"
        LIBS="-L$petra_cuda_dir/$petra_cuda_lib -lcudart $petra_save_LIBS"
        AC_MSG_CHECKING([for the CUDA run time in $petra_cuda_dir/$petra_cuda_lib])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>]],
          [[int version; return cudaRuntimeGetVersion(&version) != cudaSuccess;]])],
          [petra_have_cuda=yes; petra_found_cuda=$petra_cuda_dir])
        AC_MSG_RESULT([$petra_have_cuda])
      done
      test "x$petra_have_cuda" = xno || break
    done
    AS_IF([test "x$petra_have_cuda" = xyes], [
      CPPFLAGS="-I$petra_found_cuda/include $petra_save_CPPFLAGS"
      PETRA_HEADER_NUMBER([petra_cuda_major], [CUDART_VERSION / 1000], [#include <cuda_runtime_api.h>])
      PETRA_HEADER_NUMBER([petra_cuda_minor], [CUDART_VERSION % 1000 / 10], [#include <cuda_runtime_api.h>])])
    CPPFLAGS=$petra_save_CPPFLAGS
    LIBS=$petra_save_LIBS
    PETRA_OPTIONAL_RESULT([cuda], [the CUDA run time], [$petra_cuda_major.$petra_cuda_minor], [$petra_found_cuda],
      [NVIDIA's CUDA toolkit, or Debian's nvidia-cuda-toolkit])
  ])
])
