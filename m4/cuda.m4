dnl SPDX-License-Identifier: Apache-2.0
# PETRA_CUDA: what the cuda backend is built with: nvcc, the CUDA run time, cuDNN 9.8 or newer and cuBLAS. Optional, all or
# nothing. Never libcuda, the driver, which a build machine need not have. Sets CUDA_CPPFLAGS, CUDA_LIBS, CUBLAS_LIBS, CUDA_RPATH (apart,
# since a bundle has another), NVCC, NVCCFLAGS, NVCC_GENCODE and the conditional HAVE_CUDA; for others petra_found_cuda.
AC_DEFUN([PETRA_CUDA], [
  PETRA_OPTIONAL([cuda], [CUDA: nvcc, run time, cuDNN, cuBLAS])
  AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn=DIR],
    [folder that holds include/cudnn.h and cuDNN's libraries, where it is not CUDA's])], [], [with_cudnn=])
  AS_CASE([$with_cudnn], [''|/*], [],
    [AC_MSG_ERROR([--with-cudnn=$with_cudnn: expected an absolute folder (--with-cuda=no builds without either)])])
  AS_IF([test -n "$with_cudnn" && test "x$petra_want_cuda" = xauto], [petra_want_cuda=yes])
  AC_ARG_VAR([NVCC], [CUDA's compiler])
  AC_ARG_VAR([NVCCFLAGS], [its flags (default: -O3)])
  AC_ARG_VAR([CUDA_ARCHS], [compute capabilities that kernels are built for, without the dot (default: 80 90)])
  petra_have_cuda=no petra_found_cuda= petra_cuda_missing= CUDA_CPPFLAGS= CUDA_LIBS= CUBLAS_LIBS= CUDA_RPATH= NVCC_GENCODE=
  AS_IF([test "x$petra_want_cuda" = xauto && test "x$enable_sanitizers" != xno],
    [petra_want_cuda=no
     petra_report_cuda="not looked for: its run time reserves addresses that the address sanitizer needs (--with-cuda=yes insists)"])
  AS_IF([test "x$petra_want_cuda" != xno], [
    petra_cuda_set_archs=${CUDA_ARCHS:+set}
    : ${CUDA_ARCHS="80 90"}
    : ${NVCCFLAGS="-O3"}
    PETRA_CUDA_FOLDER
    PETRA_CUDA_NVCC
    petra_save_CPPFLAGS=$CPPFLAGS
    petra_save_LIBS=$LIBS
    AS_IF([test -n "$petra_found_cuda"], [PETRA_CUDA_LIBRARIES])
    CPPFLAGS=$petra_save_CPPFLAGS
    LIBS=$petra_save_LIBS
    AS_IF([test -z "$petra_cuda_missing"], [petra_have_cuda=yes],
      [AS_IF([test "x$petra_want_cuda" = xyes],
        [AC_MSG_ERROR([--with-cuda=$with_cuda${with_cudnn:+ --with-cudnn=$with_cudnn}: not found: $petra_cuda_missing; the option's DIR is CUDA's folder, --with-cudnn=DIR cuDNN's, NVCC=FILE the compiler; --with-cuda=no builds without])])
       AC_MSG_NOTICE([CUDA: not found: $petra_cuda_missing; going on without the backend cuda])
       petra_report_cuda="no: not found: $petra_cuda_missing"
       petra_found_cuda= CUDA_CPPFLAGS= CUDA_LIBS= CUBLAS_LIBS= CUDA_RPATH= NVCC_GENCODE=])
  ])
  AS_IF([test "x$petra_have_cuda" = xyes], [
    petra_report_cuda="CUDA $petra_cuda_major.$petra_cuda_minor, cuDNN $petra_cudnn_major.$petra_cudnn_minor, cuBLAS in $petra_found_cuda,$petra_cuda_names"
    AC_DEFINE([PETRA_HAVE_CUDA], [1], [the backend cuda is built])
    AC_DEFINE_UNQUOTED([PETRA_CUDA_ARCHS], ["`echo $petra_cuda_names`"], [what its kernels are built for])])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
  AC_SUBST([CUBLAS_LIBS])
  AC_SUBST([CUDA_RPATH])
  AC_SUBST([NVCC_GENCODE])
  CUDA_LIBRARY_PATH=`echo "$CUDA_RPATH" | sed 's/-Wl,-rpath,//g; s/ /:/g'`
  AC_SUBST([CUDA_LIBRARY_PATH])
  AS_IF([test "x$enable_werror" != xno], [NVCC_WERROR="-Werror all-warnings -Xcompiler -Werror"], [NVCC_WERROR=])
  AC_SUBST([NVCC_WERROR])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$petra_have_cuda" = xyes])
])

# PETRA_CUDA_LACKS(WHAT): one part more that was not found.
AC_DEFUN([PETRA_CUDA_LACKS], [petra_cuda_missing="${petra_cuda_missing:+$petra_cuda_missing, }$1"])

# PETRA_CUDA_FOLDER: petra_found_cuda, the folder whose include/ has the run time's header.
AC_DEFUN([PETRA_CUDA_FOLDER], [
  AS_IF([test -n "$petra_dir_cuda"], [petra_cuda_dirs=$petra_dir_cuda], [
    petra_cuda_dirs="/usr/local/cuda /opt/cuda /usr"
    petra_nvcc=`command -v nvcc 2>/dev/null`
    AS_CASE([$petra_nvcc], [/*/bin/nvcc], [petra_cuda_dirs="${petra_nvcc%/bin/nvcc} $petra_cuda_dirs"])])
  AC_MSG_CHECKING([for cuda_runtime_api.h])
  for petra_dir in $petra_cuda_dirs; do
    test -n "$petra_found_cuda" || test ! -f "$petra_dir/include/cuda_runtime_api.h" || petra_found_cuda=$petra_dir
  done
  AC_MSG_RESULT([${petra_found_cuda:-no}])
  AS_IF([test -z "$petra_found_cuda"],
    [PETRA_CUDA_LACKS([cuda_runtime_api.h in `echo $petra_cuda_dirs | sed 's: :/include, :g'`/include])])
])

# PETRA_CUDA_NVCC: NVCC, and NVCC_GENCODE for CUDA_ARCHS: code for each, and PTX of the highest for later devices.
AC_DEFUN([PETRA_CUDA_NVCC], [
  AS_IF([test -z "$NVCC"], [
    AS_IF([test -n "$petra_found_cuda" && test -x "$petra_found_cuda/bin/nvcc"], [NVCC=$petra_found_cuda/bin/nvcc],
      [AC_PATH_PROG([NVCC], [nvcc])])])
  petra_nvcc_runs=no
  AC_MSG_CHECKING([whether nvcc runs (${NVCC:-none found})])
  AS_IF([test -n "$NVCC" && $NVCC --version >/dev/null 2>&AS_MESSAGE_LOG_FD], [petra_nvcc_runs=yes])
  AC_MSG_RESULT([$petra_nvcc_runs])
  petra_cuda_highest=0 petra_cuda_names=
  petra_cuda_known=" `test $petra_nvcc_runs = no || $NVCC --list-gpu-code 2>/dev/null | sed -n 's/^sm_//p' | tr '\n' ' '`"
  for petra_arch in $CUDA_ARCHS; do
    AS_CASE([$petra_arch], [@<:@1-9@:>@@<:@0-9@:>@|@<:@1-9@:>@@<:@0-9@:>@@<:@0-9@:>@], [],
      [AC_MSG_ERROR([CUDA_ARCHS="$CUDA_ARCHS": $petra_arch: expected compute capabilities without the dot, as in CUDA_ARCHS="80 90"])])
    AS_CASE([$petra_cuda_known], [' '|*" $petra_arch "*], [],
      [test -n "$petra_cuda_set_archs" && AC_MSG_ERROR([CUDA_ARCHS="$CUDA_ARCHS": $NVCC does not know $petra_arch; it knows$petra_cuda_known])])
    NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$petra_arch,code=sm_$petra_arch"
    petra_cuda_names="$petra_cuda_names sm_$petra_arch"
    test $petra_arch -le $petra_cuda_highest || petra_cuda_highest=$petra_arch
  done
  AS_IF([test $petra_cuda_highest = 0], [AC_MSG_ERROR([CUDA_ARCHS is empty: expected compute capabilities, as in CUDA_ARCHS="80 90"])])
  NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$petra_cuda_highest,code=compute_$petra_cuda_highest"
  AS_IF([test $petra_nvcc_runs = no], [PETRA_CUDA_LACKS([nvcc (${NVCC:-none in ${petra_found_cuda:+$petra_found_cuda/bin or }PATH}${NVCC:+ does not run})])], [
    AC_MSG_CHECKING([whether nvcc compiles for$petra_cuda_names])
    echo '__global__ void k(int *x) { *x = 1; }' >conftest.cu
    AS_IF([AC_TRY_COMMAND([$NVCC $NVCCFLAGS $NVCC_GENCODE -c -o conftest.cu.o conftest.cu >&AS_MESSAGE_LOG_FD 2>&1])],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       PETRA_CUDA_LACKS([an nvcc that compiles for$petra_cuda_names (config.log has $NVCC's complaint)])])
    rm -f conftest.cu conftest.cu.o])
])

# PETRA_CUDA_FIND(VARIABLE, OPTIONS, FOLDERS, HEADER, CALL): the first of these folders under which one of the options finds
# a library in which the call links; VARIABLE then has the option, VARIABLE_dir the folder. Puts them into CUDA_LIBS.
AC_DEFUN([PETRA_CUDA_FIND], [
  $1= $1_dir=
  for petra_dir in $3; do
    for petra_lib in lib64 lib lib/x86_64-linux-gnu targets/x86_64-linux/lib; do
      test -z "$$1" && test -d "$petra_dir/$petra_lib" || continue
      for petra_option in $2; do
        test -z "$$1" || continue
        AC_MSG_CHECKING([for $petra_option in $petra_dir/$petra_lib])
        # The folder alone: not another copy that the linker would find by itself.
        petra_file=$petra_dir/$petra_lib/`echo $petra_option | sed 's/^-l:\(.*\)$/\1/; s/^-l\(.*\)$/lib\1.so/'`
        LIBS="-L$petra_dir/$petra_lib $petra_option $CUDA_LIBS -Wl,--allow-shlib-undefined $petra_save_LIBS"
        AS_IF([test -e "$petra_file"],
          [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$4>]], [[return (int)$5;]])],
            [$1=$petra_option; $1_dir=$petra_dir/$petra_lib])])
        AC_MSG_RESULT([${$1:-no}])
      done
    done
  done
  AS_IF([test -n "$$1"], [
    AS_CASE([" $CUDA_LIBS "], [*" -L$$1_dir "*], [CUDA_LIBS="$CUDA_LIBS $$1"], [CUDA_LIBS="$CUDA_LIBS -L$$1_dir $$1"])
    AS_CASE(["$$1_dir: $CUDA_RPATH "], [/usr/lib:*|/usr/lib64:*|/usr/lib/x86_64-linux-gnu:*|*"-rpath,$$1_dir "*], [],
      [CUDA_RPATH="${CUDA_RPATH:+$CUDA_RPATH }-Wl,-rpath,$$1_dir"])])
])

# PETRA_CUDA_LIBRARIES: the headers and libraries; CPPFLAGS and LIBS are lost.
AC_DEFUN([PETRA_CUDA_LIBRARIES], [
  petra_cudnn_where=${with_cudnn:-$petra_found_cuda}
  # cuDNN's own folder first: CUDA's may hold another cuDNN.
  for petra_dir in $with_cudnn $petra_found_cuda; do
    AS_CASE([" $CUDA_CPPFLAGS $petra_dir "], [*" $petra_dir "*" $petra_dir "*|*" /usr "], [],
      [CUDA_CPPFLAGS="${CUDA_CPPFLAGS:+$CUDA_CPPFLAGS }-isystem $petra_dir/include"])
  done
  CPPFLAGS="$petra_save_CPPFLAGS $CUDA_CPPFLAGS"
  PETRA_CUDA_FIND([petra_cudart], [-lcudart], [$petra_found_cuda], [cuda_runtime_api.h], [cudaGetDeviceCount(0)])
  AS_IF([test -n "$petra_cudart"], [
    PETRA_HEADER_NUMBER([petra_cuda_major], [CUDART_VERSION / 1000], [#include <cuda_runtime_api.h>])
    PETRA_HEADER_NUMBER([petra_cuda_minor], [CUDART_VERSION % 1000 / 10], [#include <cuda_runtime_api.h>])],
    [PETRA_CUDA_LACKS([libcudart in $petra_found_cuda])])
  PETRA_HEADER_NUMBER([petra_cudnn_major], [CUDNN_MAJOR], [#include <cudnn.h>])
  AS_CASE([$petra_cudnn_major],
    [\?], [PETRA_CUDA_LACKS([cudnn.h in $petra_cudnn_where/include])],
    [@<:@0-8@:>@], [PETRA_CUDA_LACKS([cuDNN 9.8 or newer in $petra_cudnn_where (there is $petra_cudnn_major)])],
    [PETRA_HEADER_NUMBER([petra_cudnn_minor], [CUDNN_MINOR], [#include <cudnn.h>])
     AS_CASE([$petra_cudnn_major.$petra_cudnn_minor],
       [9.@<:@0-7@:>@], [PETRA_CUDA_LACKS([cuDNN 9.8 or newer in $petra_cudnn_where (there is $petra_cudnn_major.$petra_cudnn_minor)])])
     PETRA_CUDA_FIND([petra_cudnn], [-lcudnn -l:libcudnn.so.$petra_cudnn_major], [$petra_cudnn_where], [cudnn.h], [cudnnGetVersion()])
     AS_IF([test -z "$petra_cudnn"], [PETRA_CUDA_LACKS([libcudnn in $petra_cudnn_where])])])
  petra_cublas_header=yes
  AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <cublas_v2.h>]])], [], [petra_cublas_header=no])
  AS_IF([test $petra_cublas_header = no], [PETRA_CUDA_LACKS([cublas_v2.h in $petra_found_cuda/include])], [
    # petra opens cuBLAS when it needs it; CUBLAS_LIBS is for a program that shall carry it along.
    petra_save_CUDA_LIBS=$CUDA_LIBS
    PETRA_CUDA_FIND([petra_cublas], [-lcublas], [$petra_found_cuda], [cublas_v2.h], [cublasGetProperty(MAJOR_VERSION, 0)])
    AS_IF([test -z "$petra_cublas"], [PETRA_CUDA_LACKS([libcublas in $petra_found_cuda])],
      [CUBLAS_LIBS="-Wl,--push-state,--no-as-needed -L$petra_cublas_dir $petra_cublas -Wl,--pop-state"])
    CUDA_LIBS=$petra_save_CUDA_LIBS])
  # A program that calls none of it need not load it.
  CUDA_LIBS="-Wl,--push-state,--as-needed$CUDA_LIBS -Wl,--pop-state"
])
