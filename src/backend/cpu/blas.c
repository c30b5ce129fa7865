/* SPDX-License-Identifier: Apache-2.0 */
/* All that is CBLAS's. */
#include "config.h"

#include "backend/cpu/product.h"

#include <cblas.h>
#include <stdio.h>
#include <string.h>

void cpu_blas_init(void) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  openblas_set_num_threads(1);
#endif
}

void cpu_blas_describe(char *text, size_t size) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  /* "OpenBLAS 0.3.21 NO_LAPACKE ...": name and version only. */
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
