/* The `cpu` backend's handle and its table of operations. */
#include "backend/cpu/cpu.h"

#include "backend/registry.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>

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

static void destroy(petra_backend *backend) {
  cpu_backend *cpu = cpu_of(backend);
  for (int i = 0; i < cpu->lane_count; i++) {
    cpu_convolutions_destroy(cpu->lanes[i].convolutions);
    petra_free(cpu->lanes[i].scratch);
  }
  petra_free(cpu);
}

static void describe(const petra_backend *backend, char *text, size_t size) {
  char convolutions[128], blas[128], lanes[64] = "";
  cpu_convolutions_describe(convolutions, sizeof convolutions);
  cpu_blas_describe(blas, sizeof blas);
  if (backend->lanes > 1)
    snprintf(lanes, sizeof lanes, "%d actions at once, each ", backend->lanes);
  snprintf(text, size, "cpu: %s, OpenMP, %s%d thread%s; %s", convolutions, lanes, backend->threads,
           backend->threads == 1 ? "" : "s", blas);
}

static const petra_backend_ops cpu_ops = {.name = "cpu",
                                          .destroy = destroy,
                                          .describe = describe,
                                          .storage_create = cpu_storage_create,
                                          .storage_destroy = cpu_storage_destroy,
                                          .storage_bytes = cpu_storage_bytes,
                                          PETRA_OPERATIONS(PETRA_OPERATION_ENTRY, cpu_)};

/* `deterministic` asks for nothing more: every operation is deterministic at a fixed number of threads. */
petra_status petra_cpu_create(const petra_backend_options *options, petra_backend **out) {
  const int lanes = options->lanes > 1 ? options->lanes : 1;
  cpu_backend *cpu;
  PETRA_TRY(petra_allocate(&cpu, 1, sizeof *cpu + (size_t)lanes * sizeof *cpu->lanes));
  cpu->base.ops = &cpu_ops;
  cpu->block = cpu_preferred_block();
  for (; cpu->lane_count < lanes; cpu->lane_count++) {
    petra_status status = cpu_convolutions_create(&cpu->lanes[cpu->lane_count].convolutions);
    if (status != PETRA_OK) {
      destroy(&cpu->base);
      return status;
    }
  }
  cpu_blas_init();
  *out = &cpu->base;
  return PETRA_OK;
}
