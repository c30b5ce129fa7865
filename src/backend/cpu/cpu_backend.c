/* SPDX-License-Identifier: Apache-2.0 */
/* The `cpu` backend: its BLAS library, its handle and its table of operations. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/onednn.h"
#include "backend/registry.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/threads.h"
#include "config.h"

#include <cblas.h>
#include <stdio.h>
#include <string.h>

/* --- CBLAS, which cpu_optim.c uses as well --- */

/* Memory that OpenBLAS on x86-64 allocates for a thread at its first product, and keeps. If it gets none, it tries for
 * ever. */
enum { BUFFER_BYTES = 128 << 20 };

void petra_cpu_blas_alone(void) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  openblas_set_num_threads(1);
#endif
}

/* Restricts the BLAS library, which multiplies only the matrices of the head, to one thread, so that the order of its
 * sums is fixed. Errors: PETRA_NO_MEMORY, logged, if there is not enough memory for the library's own buffers in
 * `threads` threads that call it. */
static petra_status init_blas(int threads) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  float one = 1;
  PETRA_TRY(petra_reserve((size_t)threads * BUFFER_BYTES));
  cblas_ssyrk(CblasRowMajor, CblasUpper, CblasNoTrans, 1, 1, 1, &one, 1, 0, &one, 1);
#else
  (void)threads;
#endif
  return PETRA_OK;
}

static void describe_blas(char *text, size_t size) {
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
  cblas_sgemm(CblasRowMajor, p->a.transposed ? CblasTrans : CblasNoTrans, p->b.transposed ? CblasTrans : CblasNoTrans,
              (int)p->m, (int)p->n, (int)p->k, p->alpha, p->a.at, (int)p->a.step, p->b.at, (int)p->b.step, p->beta,
              p->c.at, (int)p->c.step);
}

/* --- the handle --- */

petra_status cpu_scratch(petra_backend *backend, size_t bytes, void **out) {
  cpu_lane *lane = cpu_lane_of(backend);
  if (bytes > lane->scratch_bytes) {
    petra_free(lane->scratch);
    lane->scratch = NULL;
    lane->scratch_bytes = 0;
    PETRA_TRY(petra_allocate_raw(&lane->scratch, bytes, 1));
    lane->scratch_bytes = bytes;
  }
  *out = lane->scratch;
  return PETRA_OK;
}

static void held(petra_backend *backend, petra_backend_memory *out) {
  cpu_backend *cpu = cpu_of(backend);
  pthread_mutex_lock(&cpu->shadows);
  out->filters = cpu->shadow_bytes;
  pthread_mutex_unlock(&cpu->shadows);
  out->scratch = 0;
  for (int i = 0; i < cpu->lane_count; i++)
    out->scratch += (int64_t)cpu->lanes[i].scratch_bytes;
}

void cpu_use_threads(const petra_backend *backend) {
  petra_threads_use(backend->threads);
}

static void destroy(petra_backend *backend) {
  cpu_backend *cpu = cpu_of(backend);
  for (int i = 0; i < cpu->lane_count; i++) {
    cpu_primitives_destroy(&cpu->lanes[i]);
    cpu_onednn_destroy(cpu->lanes[i].library);
    petra_free(cpu->lanes[i].scratch);
  }
  pthread_mutex_destroy(&cpu->shadows);
  petra_free(cpu);
}

static void describe(const petra_backend *backend, char *text, size_t size) {
  char convolutions[128], blas[128], lanes[64] = "";
  cpu_onednn_describe(convolutions, sizeof convolutions);
  describe_blas(blas, sizeof blas);
  if (backend->lanes > 1)
    snprintf(lanes, sizeof lanes, "%d actions at once, each ", backend->lanes);
  snprintf(text, size, "cpu: %s, %s, %s, %s%d thread%s; %s", convolutions, cpu_onednn_has_bf16() ? "bf16" : "no bf16",
           petra_threads_openmp() ? "OpenMP" : "no OpenMP", lanes, backend->threads, backend->threads == 1 ? "" : "s",
           blas);
}

static const petra_backend_ops cpu_ops = {.name = "cpu",
                                          .destroy = destroy,
                                          .describe = describe,
                                          .storage_create = cpu_storage_create,
                                          .storage_destroy = cpu_storage_destroy,
                                          .storage_bytes = cpu_storage_bytes,
                                          .held = held,
                                          PETRA_OPERATIONS(PETRA_OPERATION_ENTRY, cpu_)};

/* Without AVX512-BF16 oneDNN has no kernels for bf16, or emulates them more slowly than it computes in float. */
static petra_status check_bf16(void) {
  char library[128];
  if (cpu_onednn_has_bf16())
    return PETRA_OK;
  cpu_onednn_describe(library, sizeof library);
  return petra_fail(PETRA_UNSUPPORTED,
                    "device.precision: bf16 with device.backend: cpu needs AVX512-BF16 or AMX-BF16, which this "
                    "processor lacks (%s); expected device.precision: fp32",
                    library);
}

/* `deterministic` needs no action here: every operation is deterministic at a fixed number of threads. */
petra_status petra_cpu_create(const petra_backend_options *options, petra_backend **out) {
  const bool bf16 = options->precision == PETRA_PRECISION_BF16;
  const int lanes = options->lanes > 1 ? options->lanes : 1;
  cpu_backend *cpu;
  if (bf16 && !options->sizes_only)
    PETRA_TRY(check_bf16());
  PETRA_TRY(petra_allocate(&cpu, 1, sizeof *cpu + (size_t)lanes * sizeof *cpu->lanes));
  cpu->base.ops = &cpu_ops;
  cpu->channels_last = bf16;
  pthread_mutex_init(&cpu->shadows, NULL); /* with default attributes it cannot fail on Linux */
  cpu->block = CPU_BLOCK_MAX;
  petra_status status;
  for (; cpu->lane_count < lanes; cpu->lane_count++)
    PETRA_TRY_GOTO(status, cpu_onednn_create(&cpu->lanes[cpu->lane_count].library), fail);
  if (!bf16)
    PETRA_TRY_GOTO(status, cpu_onednn_block(cpu->lanes[0].library, &cpu->block), fail);
  if (!options->sizes_only)
    PETRA_TRY_GOTO(status, init_blas(lanes * (options->threads > 1 ? options->threads : 1)), fail);
  *out = &cpu->base;
  return PETRA_OK;
fail:
  destroy(&cpu->base);
  return status;
}
