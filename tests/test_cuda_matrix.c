/* SPDX-License-Identifier: Apache-2.0 */
/* What cublas.c asks of cuBLAS, held against sums written out: the cuBLAS of this program is the few
 * functions below, which compute column-major products on the host as cuBLAS's documentation has them. */
#include "backend/cuda/cuda_libraries.h"
#include "harness.h"

#include <cublas_v2.h>

/* --- a cuBLAS on the host --- */

static struct {
  cublasStatus_t create, gemm; /* answers */
  cudaStream_t stream;
  void *workspace; /* since the last cublasSetStream */
  size_t workspace_bytes;
  cublasComputeType_t compute;
  cublasMath_t mode;
  int live;
} blas;

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  if (blas.create == CUBLAS_STATUS_SUCCESS) {
    *handle = (cublasHandle_t)&blas;
    blas.live++;
  }
  return blas.create;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  (void)handle;
  blas.live--;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  (void)handle;
  blas.mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  (void)handle;
  blas.stream = stream;
  blas.workspace = NULL;
  blas.workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
  (void)handle;
  blas.workspace = workspace;
  blas.workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
  *value = 13 + (int)type;
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_ALLOC_FAILED ? "alloc" : "other";
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType type_a, int lda, const void *b,
                            cudaDataType type_b, int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  const float *x = a, *y = b;
  float *z = c;
  (void)handle;
  (void)algorithm;
  ck_assert(type_a == CUDA_R_32F && type_b == CUDA_R_32F && type_c == CUDA_R_32F);
  ck_assert(lda >= (op_a == CUBLAS_OP_N ? m : k) && ldb >= (op_b == CUBLAS_OP_N ? k : n) && ldc >= m);
  blas.compute = compute;
  for (int j = 0; j < n && blas.gemm == CUBLAS_STATUS_SUCCESS; j++)
    for (int i = 0; i < m; i++) {
      float sum = 0, scale = *(const float *)beta;
      for (int l = 0; l < k; l++)
        sum += (op_a == CUBLAS_OP_N ? x[i + l * lda] : x[l + i * lda]) *
               (op_b == CUBLAS_OP_N ? y[l + j * ldb] : y[j + l * ldb]);
      z[i + j * ldc] = *(const float *)alpha * sum + (scale == 0 ? 0 : scale * z[i + j * ldc]);
    }
  return blas.gemm;
}

/* --- the tests --- */

enum { M = 3, N = 4, K = 5 };

static char scratch; /* an address */

static cuda_lane lane_of(size_t bytes) {
  return (cuda_lane){(cuda_stream)&blas, &scratch, bytes, NULL};
}

/* Small whole numbers: exact in any order. Element (i, j) of a matrix, whichever way it is stored. */
static float value(int i, int j, int which) {
  return (float)((3 * i + 5 * j + 7 * which) % 11 - 5);
}

static void fill(float *out, int rows, int columns, bool transposed, int which) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++)
      out[transposed ? j * rows + i : i * columns + j] = value(i, j, which);
}

static void check_product(cuda_blas *made, bool transpose_a, bool transpose_b, float alpha, float beta) {
  float a[M * K], b[K * N], c[M * N];
  const cuda_lane lane = lane_of(CUDA_BLAS_SCRATCH);
  const cuda_product product = {a, b, c, M, N, K, transpose_a, transpose_b, alpha, beta};
  fill(a, M, K, transpose_a, 0);
  fill(b, K, N, transpose_b, 1);
  fill(c, M, N, false, 2);
  ck_assert_int_eq(cuda_blas_product(made, &lane, &product), PETRA_OK);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      float expected = beta * value(i, j, 2);
      for (int l = 0; l < K; l++)
        expected += alpha * value(i, l, 0) * value(l, j, 1);
      ck_assert_msg(c[i * N + j] == expected, "(%d, %d): %g, expected %g", i, j, (double)c[i * N + j],
                    (double)expected);
    }
  ck_assert(blas.stream == lane.stream && blas.workspace == &scratch && blas.workspace_bytes == CUDA_BLAS_SCRATCH);
}

START_TEST(products) {
  static const struct {
    petra_precision precision;
    cublasComputeType_t compute;
    int mode;
  } cases[] = {{PETRA_PRECISION_FP32, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_PEDANTIC_MATH},
               {PETRA_PRECISION_TF32, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION},
               {PETRA_PRECISION_BF16, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    cuda_blas *made = NULL;
    ck_assert_int_eq(cuda_blas_create(cases[i].precision, &made), PETRA_OK);
    for (int way = 0; way < 16; way++)
      check_product(made, (way & 1) != 0, (way & 2) != 0, (way & 8) != 0 ? -1 : 1, (way & 4) != 0 ? 1 : 0);
    ck_assert(blas.compute == cases[i].compute && (int)blas.mode == cases[i].mode);
    cuda_blas_destroy(made);
    ck_assert_int_eq(blas.live, 0);
  }
}
END_TEST

START_TEST(failures) {
  cuda_blas *made = NULL;
  float one = 1;
  const cuda_product product = {&one, &one, &one, 1, 1, 1, false, true, 1, 0};
  cuda_lane lane = lane_of(CUDA_BLAS_SCRATCH - 1);
  harness_clear();
  blas.create = CUBLAS_STATUS_ALLOC_FAILED;
  ck_assert_int_eq(cuda_blas_create(PETRA_PRECISION_FP32, &made), PETRA_NO_MEMORY);
  ck_assert_logged("out of memory: cuBLAS: cublasCreate: alloc");
  ck_assert(made == NULL && harness_lines == 1);
  blas.create = CUBLAS_STATUS_SUCCESS;
  ck_assert_int_eq(cuda_blas_create(PETRA_PRECISION_FP32, &made), PETRA_OK);
  ck_assert_int_eq(cuda_blas_product(made, &lane, &product), PETRA_INTERNAL);
  ck_assert_logged("expected at least 33554432: product of 1x1 and transposed 1x1");
  lane = lane_of(CUDA_BLAS_SCRATCH);
  blas.gemm = CUBLAS_STATUS_EXECUTION_FAILED;
  ck_assert_int_eq(cuda_blas_product(made, &lane, &product), PETRA_BACKEND);
  ck_assert_logged("cuBLAS: product of 1x1 and transposed 1x1: other (13)");
  ck_assert_int_eq(harness_lines, 3);
  blas.gemm = CUBLAS_STATUS_SUCCESS;
  cuda_blas_destroy(made);
  cuda_blas_destroy(NULL);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {products, failures};
  return harness_run("cuda_matrix", tests, HARNESS_COUNT(tests));
}
