/* SPDX-License-Identifier: Apache-2.0 */
/* All uses of CBLAS except those of optim.c. */
#include "config.h"

#include "backend/cpu/cpu.h"
#include "backend/registry.h"
#include "base/mem.h"

#include <cblas.h>
#include <stdio.h>
#include <string.h>

/* Memory that OpenBLAS on x86-64 allocates for a thread at its first product, and keeps. If it gets none, it tries for
 * ever. */
enum { BUFFER_BYTES = 128 << 20 };

void petra_cpu_blas_alone(void) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  openblas_set_num_threads(1);
#endif
}

petra_status cpu_blas_init(int threads) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  float one = 1;
  PETRA_TRY(petra_reserve((size_t)threads * BUFFER_BYTES));
  cblas_ssyrk(CblasRowMajor, CblasUpper, CblasNoTrans, 1, 1, 1, &one, 1, 0, &one, 1);
#else
  (void)threads;
#endif
  return PETRA_OK;
}

void cpu_blas_describe(char *text, size_t size) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  /* "OpenBLAS 0.3.21 NO_LAPACKE ...": uses only name and version. */
  char config[128];
  snprintf(config, sizeof config, "%s", openblas_get_config());
  char *space = strchr(config, ' ');
  space = space ? strchr(space + 1, ' ') : NULL;
  if (space)
    *space = 0;
  snprintf(text, size, "%.64s (%.32s), 1 thread", config, openblas_get_corename());
#else
  snprintf(text, size, "CBLAS");
#endif
}

void cpu_blas_product(const cpu_product *p) {
  cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans, p->transpose_b ? CblasTrans : CblasNoTrans,
              (int)p->m, (int)p->n, (int)p->k, p->alpha, p->a, (int)p->step_a, p->b, (int)p->step_b, p->beta, p->c,
              (int)p->step_c);
}
