/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLAS. */
#include "backend/cuda/cuda_libraries.h"

#include "base/log.h"
#include "base/mem.h"

#include <cublas_v2.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The functions of cuBLAS that this file calls. They are looked up at the first use: the library is so large that
 * loading it would take most of the time of a short command. */
#define FUNCTIONS(each)                                                                                                \
  each(cublasCreate_v2) each(cublasDestroy_v2) each(cublasSetMathMode) each(cublasSetStream_v2)                        \
      each(cublasSetWorkspace_v2) each(cublasGemmEx) each(cublasGetStatusString) each(cublasGetProperty)
#define POINTER(name) __typeof__(name) *name;
static struct {
  bool ready;
  FUNCTIONS(POINTER)
} library;

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* Opens cuBLAS. A program that is linked with cuBLAS uses it; tests are linked with a fake. On failure
 * dlerror() returns the reason. */
static bool open_library(void) {
  if (library.ready)
    return true;
  void *file = RTLD_DEFAULT;
  if (dlsym(RTLD_DEFAULT, "cublasCreate_v2") == NULL) {
    file = dlopen("libcublas.so." TEXT(CUBLAS_VER_MAJOR), RTLD_LAZY);
    if (file == NULL)
      return false;
  }
  void *found;
#define LOOK_UP(name)                                                                                                  \
  if ((found = dlsym(file, #name)) == NULL)                                                                            \
    return false;                                                                                                      \
  memcpy(&library.name, &found, sizeof found);
  FUNCTIONS(LOOK_UP)
  library.ready = true;
  return true;
}

struct cuda_blas {
  cublasHandle_t handle;
  cublasComputeType_t compute;
};

static petra_status library_error(cublasStatus_t status, const char *what) {
  bool no_memory = status == CUBLAS_STATUS_ALLOC_FAILED;
  return petra_fail(no_memory ? PETRA_NO_MEMORY : PETRA_BACKEND, "%scuBLAS: %s: %s (%d)",
                    no_memory ? "out of memory: " : "", what, library.cublasGetStatusString(status), (int)status);
}

/* Pedantic: f32 in every phase, no tensor cores. Otherwise inputs are rounded to the type; sums stay f32 in all. */
static cublasComputeType_t compute_type(petra_precision precision) {
  switch (precision) {
  case PETRA_PRECISION_TF32:
    return CUBLAS_COMPUTE_32F_FAST_TF32;
  case PETRA_PRECISION_BF16:
    return CUBLAS_COMPUTE_32F_FAST_16BF;
  default:
    return CUBLAS_COMPUTE_32F_PEDANTIC;
  }
}

petra_status cuda_blas_create(petra_precision precision, cuda_blas **out) {
  cuda_blas *blas = NULL;
  if (!open_library())
    return petra_fail(PETRA_BACKEND, "cuBLAS: cannot be loaded: %s", dlerror());
  PETRA_TRY(petra_allocate(&blas, 1, sizeof *blas));
  blas->compute = compute_type(precision);
  cublasStatus_t status = library.cublasCreate(&blas->handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    petra_free(blas);
    return library_error(status, "cublasCreate");
  }
  /* Partial sums of split products stay f32 too. */
  const int mode = blas->compute == CUBLAS_COMPUTE_32F_PEDANTIC
                       ? CUBLAS_PEDANTIC_MATH
                       : CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  status = library.cublasSetMathMode(blas->handle, (cublasMath_t)mode);
  if (status != CUBLAS_STATUS_SUCCESS) {
    cuda_blas_destroy(blas);
    return library_error(status, "cublasSetMathMode");
  }
  *out = blas;
  return PETRA_OK;
}

void cuda_blas_destroy(cuda_blas *blas) {
  if (blas == NULL)
    return;
  library.cublasDestroy(blas->handle);
  petra_free(blas);
}

/* cuBLAS is column-major, where a row-major (m, n) is an (n, m): c' = op(b)' op(a)'. Setting the stream
 * resets the workspace to the workspace of cuBLAS, which concurrent streams would share. With the lane's workspace,
 * results repeat bit for bit. */
static cublasStatus_t multiply(cuda_blas *blas, const cuda_lane *lane, const cuda_product *p) {
  cublasStatus_t status = library.cublasSetStream(blas->handle, lane->stream);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = library.cublasSetWorkspace(blas->handle, lane->scratch, CUDA_BLAS_SCRATCH);
  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  return library.cublasGemmEx(blas->handle, p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                              p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, p->n, p->m, p->k, &p->alpha, p->b, CUDA_R_32F,
                              p->transpose_b ? p->k : p->n, p->a, CUDA_R_32F, p->transpose_a ? p->m : p->k, &p->beta,
                              p->c, CUDA_R_32F, p->n, blas->compute, CUBLAS_GEMM_DEFAULT);
}

petra_status cuda_blas_product(cuda_blas *blas, const cuda_lane *lane, const cuda_product *product) {
  char what[96];
  snprintf(what, sizeof what, "product of %s%dx%d and %s%dx%d", product->transpose_a ? "transposed " : "", product->m,
           product->k, product->transpose_b ? "transposed " : "", product->k, product->n);
  if (lane->scratch_bytes < CUDA_BLAS_SCRATCH)
    return petra_fail(PETRA_INTERNAL, "cuBLAS: the lane has %zu bytes of scratch, expected at least %d: %s",
                      lane->scratch_bytes, (int)CUDA_BLAS_SCRATCH, what);
  cublasStatus_t status = multiply(blas, lane, product);
  return status == CUBLAS_STATUS_SUCCESS ? PETRA_OK : library_error(status, what);
}

void cuda_blas_describe(char *text, size_t size) {
  int major = 0, minor = 0, patch = 0;
  if (!open_library()) {
    snprintf(text, size, "cuBLAS not found");
    return;
  }
  library.cublasGetProperty(MAJOR_VERSION, &major);
  library.cublasGetProperty(MINOR_VERSION, &minor);
  library.cublasGetProperty(PATCH_LEVEL, &patch);
  snprintf(text, size, "cuBLAS %d.%d.%d", major, minor, patch);
}
