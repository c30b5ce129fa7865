/* SPDX-License-Identifier: Apache-2.0 */
/* petra profile: measures the stages on one rank while the others wait, as in a run whose ranks are not all busy. */
#include "base/mem.h"
#include "profile/profile.h"

#include <string.h>

typedef double means[PETRA_PROFILE_PARTS];

typedef struct sums {
  means *stage;
  int32_t stages, ranks;
} sums;

/* Uses fewer repetitions, because the ranks measure one after the other. */
static petra_status measure_here(const petra_plan *plan, petra_backend *backend, int ranks, means *out) {
  const int stages = plan->partition.stages;
  petra_config config = *plan->config;
  petra_plan fewer = *plan; /* borrows its members */
  petra_profile_stage *stage;
  config.profile.repetitions = (config.profile.repetitions + ranks - 1) / ranks;
  fewer.config = &config;
  PETRA_TRY(petra_allocate(&stage, (size_t)stages, sizeof *stage));
  petra_status status = petra_profile_measure(&fewer, backend, NULL, true, stage);
  for (int j = 0; j < stages && status == PETRA_OK; j++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++)
      out[j][p] = stage[j].part[p].mean;
  petra_free(stage);
  return status;
}

static petra_status add(void *context, int rank, const void *data, size_t size) {
  const sums *s = context;
  (void)rank;
  (void)size;
  for (int32_t j = 0; j < s->stages; j++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++) {
      double mean;
      memcpy(&mean, (const char *)data + sizeof(means) * (size_t)j + sizeof mean * (size_t)p, sizeof mean);
      s->stage[j][p] += mean / s->ranks;
    }
  return PETRA_OK;
}

petra_status petra_profile_measure_alone(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks,
                                         petra_profile *out) {
  const size_t stages = (size_t)plan->partition.stages;
  sums s = {.stages = plan->partition.stages, .ranks = ranks->count};
  means *own = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&own, stages, sizeof *own), done);
  PETRA_TRY_GOTO(status, petra_allocate(&s.stage, stages, sizeof *s.stage), done);
  for (int r = 0; r < ranks->count; r++)
    PETRA_TRY_GOTO(
        status,
        petra_ranks_agree(ranks, r == ranks->rank ? measure_here(plan, backend, ranks->count, own) : PETRA_OK, NULL),
        done);
  PETRA_TRY_GOTO(status, petra_ranks_gather(ranks, own, stages * sizeof *own, add, &s), done);
  for (int32_t j = 0; j < s.stages && ranks->rank == 0; j++)
    memcpy(out->stage[j].alone_s, s.stage[j], sizeof s.stage[j]);
  out->has_alone = true;
done:
  petra_free(s.stage);
  petra_free(own);
  return status;
}
