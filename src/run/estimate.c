/* SPDX-License-Identifier: Apache-2.0 */
#include "run/estimate.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/folder.h"
#include "run/simulation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LOG_ROW_BYTES = 52 }; /* of /train, docs/hdf5-schema.md */

/* Opens the simulation without a limit on microbatches: by its end the pipeline is full and stores its maximum. A
 * shorter run is simulated with its own length. */
static petra_status open_simulation(petra_config *config, int64_t microbatches, petra_run **out) {
  const petra_run_options options = {.kind = PETRA_RUN_SIMULATE};
  config->run.max_microbatches = 0;
  PETRA_TRY(petra_run_open(config, &options, out));
  if (microbatches == 0 || petra_run_plan(*out)->program.microbatches <= microbatches)
    return PETRA_OK;
  petra_run_destroy(*out);
  *out = NULL;
  config->run.max_microbatches = microbatches;
  return petra_run_open(config, &options, out);
}

static petra_status count_memory(const petra_config *config, int64_t microbatches, petra_estimate *out) {
  petra_run *simulation = NULL;
  petra_config *copy = NULL;
  char *text;
  size_t size;
  petra_status status;
  PETRA_TRY(petra_folder_expand_config(config, &text, &size));
  PETRA_TRY_GOTO(status, petra_config_load_text(&(petra_config_text){"the run", text, size}, NULL, 0, &copy), done);
  copy->run.trace_actions = false;
  if (copy->cluster.cost.model == PETRA_COST_MEASURED)
    copy->cluster.cost.model = PETRA_COST_UNIT;
  PETRA_TRY_GOTO(status, open_simulation(copy, microbatches, &simulation), done);
  PETRA_TRY_GOTO(status, petra_run_go(simulation), done);
  const petra_account *accounts = petra_run_simulated(simulation)->accounts;
  out->runs_away = petra_run_simulated(simulation)->runaway >= 0 &&
                   (microbatches == 0 || petra_run_plan(simulation)->program.microbatches < microbatches);
  if (!accounts || out->runs_away) /* stages without a model */
    goto done;
  out->memory_bytes = 0;
  for (int32_t j = 0; j < petra_run_plan(simulation)->stages; j++)
    out->memory_bytes += config->cluster.replicas * accounts[j].total_peak_bytes;
done:
  petra_run_destroy(simulation);
  petra_config_destroy(copy);
  petra_free(text);
  return status;
}

/* Adds F, B and U of all stages; reconstruction takes time only if the stage inverts or recomputes. */
static petra_status sum_profile(const petra_plan *plan, double *out) {
  double ns = 0;
  for (int j = 0; j < plan->stages; j++) {
    petra_stage_cost cost = {0};
    PETRA_TRY(petra_plan_profile_cost(plan, j, &cost));
    const bool rebuilds = plan->method.recomputes && j < plan->stages - 1;
    ns += (double)cost.forward_ns + (double)cost.backward_ns + (rebuilds ? (double)cost.reconstruct_ns : 0) +
          (double)cost.update_ns / (double)plan->config->method.accumulate;
  }
  *out = 1e-9 * ns * (double)plan->config->cluster.replicas;
  return PETRA_OK;
}

/* petra simulate or the profile has no figure for this combination, which is no failure of the run. */
static bool cannot_be_simulated(petra_status status) {
  return status == PETRA_CONFIG || status == PETRA_SCHEDULE || status == PETRA_UNSUPPORTED;
}

petra_status petra_estimate_of(const petra_plan *plan, int64_t microbatches, petra_estimate *out) {
  const petra_config *config = plan->config;
  petra_status status = PETRA_OK;
  petra_log_kept kept = {.line = "out of memory while estimating the memory of the run"};
  *out = (petra_estimate){.microbatch_s = NAN, .memory_bytes = -1};
  for (int b = 0; b < plan->model.block_count + plan->model.auxiliary_count; b++)
    out->weights_bytes += petra_block_parameters(&plan->model, &plan->model.blocks[b]) *
                          petra_plan_element_bytes(plan, PETRA_TENSOR_FILTER);
  petra_log_keep(&kept); /* logged below if it is a failure of the run */
  if (plan->profile && config->run.mode == PETRA_MODE_EMULATE)
    status = sum_profile(plan, &out->microbatch_s);
  if (cannot_be_simulated(status)) {
    out->microbatch_s = NAN;
    status = PETRA_OK;
  }
  if (status == PETRA_OK)
    status = count_memory(config, microbatches, out);
  petra_log_keep_end(&kept);
  if (status == PETRA_OK || cannot_be_simulated(status))
    return PETRA_OK;
  return petra_fail(status, "%s", kept.line);
}

static void print_duration(double seconds, FILE *out) {
  const int64_t s = llround(seconds);
  fprintf(out, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
}

static void print_time(const petra_plan *plan, const petra_estimate *estimate, int64_t microbatches, int64_t done,
                       FILE *out) {
  if (isnan(estimate->microbatch_s)) {
    fputs("time     unknown (for an estimate run petra profile, then set cluster.cost.model: profile)\n", out);
    return;
  }
  fputs("time     ", out);
  if (microbatches > 0)
    print_duration(estimate->microbatch_s * (double)(microbatches - done), out);
  if (done > 0)
    fprintf(out, " for the remaining %" PRId64 " microbatches", microbatches - done);
  fprintf(out, "%s%.3g s per microbatch%s, from %s: all stages in sequence, without data loading and evaluation\n",
          microbatches > 0 ? " (" : "", estimate->microbatch_s, microbatches > 0 ? ")" : "",
          plan->config->cluster.cost.profile);
}

void petra_estimate_print(const petra_plan *plan, const petra_estimate *estimate, int64_t microbatches, int64_t done,
                          FILE *out) {
  print_time(plan, estimate, microbatches, done, out);
  if (estimate->memory_bytes >= 0)
    fprintf(out, "memory   %.3f MB in tensors of the stages%s (counted by petra simulate)\n",
            1e-6 * (double)estimate->memory_bytes, plan->config->cluster.replicas > 1 ? " of all replicas" : "");
  else if (estimate->runs_away)
    fputs("memory   unknown: forward runs ahead of backward without bound, so memory grows with the run; set "
          "method.credit to bound it\n",
          out);
  else
    fputs("memory   unknown: petra simulate does not support this run\n", out);
  const bool actions = plan->config->run.trace_actions, probes = plan->config->probe.per_epoch > 0;
  fprintf(out,
          "disk     weights.h5: %.3f MB of parameters; run.h5: %d bytes per microbatch%s%s%s%s%s; MB: 10^6 bytes\n",
          1e-6 * (double)estimate->weights_bytes, LOG_ROW_BYTES, actions || probes ? " plus " : "",
          actions ? "actions" : "", actions && probes ? " and " : "", probes ? "probes" : "",
          plan->config->run.checkpoint_every.count > 0 ? "; a checkpoint: less than the memory" : "");
}
