/* SPDX-License-Identifier: Apache-2.0 */
#include "run/banner.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "checkpoint/checkpoints.h"
#include "config/config.h"
#include "run/simulation.h"
#include "setup/describe.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- the estimate --- */

enum { LOG_ROW_BYTES = 52 }; /* bytes of a row of /train (docs/hdf5-schema.md) */

/* Opens the simulation. Without a limit on microbatches, it is long enough to fill the pipeline, which then stores its
 * maximum. A shorter run is simulated with its own length. */
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
  PETRA_DESTROYED(petra_config_destroy) petra_config *copy = NULL;
  PETRA_DESTROYED(petra_run_destroy) petra_run *simulation = NULL;
  PETRA_TRY(petra_config_copy(config, &copy));
  copy->run.trace_actions = false;
  if (copy->cluster.cost.model == PETRA_COST_MEASURED)
    copy->cluster.cost.model = PETRA_COST_UNIT;
  PETRA_TRY(open_simulation(copy, microbatches, &simulation));
  PETRA_TRY(petra_run_go(simulation));
  const petra_account *accounts = petra_run_simulated(simulation)->accounts;
  out->runs_away = petra_run_simulated(simulation)->runaway >= 0 &&
                   (microbatches == 0 || petra_run_plan(simulation)->program.microbatches < microbatches);
  if (!accounts || out->runs_away) /* stages without a model */
    return PETRA_OK;
  out->memory_bytes = 0;
  for (int32_t j = 0; j < petra_run_plan(simulation)->stages; j++)
    out->memory_bytes += config->cluster.replicas * accounts[j].total_peak_bytes;
  return PETRA_OK;
}

/* Adds F, B and U of all stages; reconstruction takes time only if the stage inverts or recomputes. */
static petra_status sum_profile(const petra_plan *plan, double *out) {
  double ns = 0;
  for (int j = 0; j < plan->stages; j++) {
    petra_stage_cost cost = {0};
    PETRA_TRY(petra_plan_profile_cost(plan, j, PETRA_PROFILE_MEAN, &cost));
    const bool rebuilds = plan->method.recomputes && j < plan->stages - 1;
    ns += (double)cost.forward_ns + (double)cost.backward_ns + (rebuilds ? (double)cost.reconstruct_ns : 0) +
          (double)cost.update_ns / (double)plan->config->method.accumulate;
  }
  *out = 1e-9 * ns * (double)plan->config->cluster.replicas;
  return PETRA_OK;
}

/* Returns true if petra simulate or the profile has no figure for this combination, which is not a failure of the
 * run. */
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
  petra_log_keep(&kept); /* the line is logged below if this is a failure of the run */
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

/* --- the banner --- */

enum { MAX_DELAYS = 12 };

static petra_status print_delays(const petra_plan *plan, FILE *out) {
  PETRA_FREED int64_t *delays = NULL;
  PETRA_TRY(petra_allocate(&delays, (size_t)plan->stages, sizeof *delays));
  for (int j = 0; j < plan->stages; j++)
    delays[j] = petra_method_distance(&plan->method, plan->stages, j + 1);
  fputs("delays   ", out);
  petra_describe_list(delays, plan->stages, MAX_DELAYS, out);
  fputs(" microbatches from F to B, by stage\n", out);
  return PETRA_OK;
}

static void print_length(const petra_plan *plan, FILE *out) {
  const petra_config *config = plan->config;
  fprintf(out, "length   %lld microbatches of ", (long long)plan->program.microbatches);
  if (config->cluster.replicas > 1)
    fprintf(out, "%lld x ", (long long)config->cluster.replicas);
  fprintf(out, "%lld %s, %lld an epoch\n", (long long)config->data.batch,
          petra_sample_words_of(petra_sample_kind_of(config))->samples, (long long)plan->program.batches);
}

static void print_rate(const petra_config *config, const petra_lr *lr, FILE *out) {
  fprintf(out, "rate     %g", lr->base);
  if (lr->base != config->optim.lr)
    fprintf(out, " (optim.lr %g x %s per update / 256)", config->optim.lr,
            petra_sample_words_of(petra_sample_kind_of(config))->samples);
  if (config->lr.warmup_epochs > 0)
    fprintf(out, ", reached after %lld epoch%s", (long long)config->lr.warmup_epochs,
            config->lr.warmup_epochs == 1 ? "" : "s");
  if (config->lr.schedule != PETRA_LR_STEP)
    fprintf(out, ", %s over %lld epochs", petra_config_choice_name("lr.schedule", (int)config->lr.schedule),
            (long long)config->lr.epochs);
  if (strcmp(config->optim.name, "sgd") != 0)
    fprintf(out, ", %s", config->optim.name);
  putc('\n', out);
}

static void print_files(const petra_plan *plan, const char *folder, FILE *out) {
  const petra_config *config = plan->config;
  const petra_period *every = &config->run.checkpoint_every;
  const bool best = config->run.keep == PETRA_KEEP_BEST,
             checkpoints =
                 every->count > 0 && plan->program.microbatches > petra_checkpoints_every(every, plan->program.batches);
  petra_utf8_print(out, "writes   %s/{config.yaml,run.h5,weights.h5%s}%s%s%s%s", folder,
                   *config->device.plans ? ",plans.txt" : "", best || checkpoints ? "; during the run " : "",
                   best ? "best.h5" : "", best && checkpoints ? ", " : "",
                   checkpoints ? "checkpoint.h5 and checkpoint/" : "");
  if (config->run.keep_checkpoint && !checkpoints)
    fputs("; run.keep_checkpoint has no effect: no checkpoint is due before the end", out);
  putc('\n', out);
}

petra_status petra_banner_print(const petra_plan *plan, const petra_lr *lr, int64_t done, const char *folder,
                                FILE *out) {
  petra_estimate estimate;
  fputs("network  ", out);
  petra_describe_network(plan->config, out);
  fprintf(out, ", %d stage%s\nmethod   ", plan->stages, plan->stages == 1 ? "" : "s");
  PETRA_TRY(petra_describe_method(plan->config, out));
  putc('\n', out);
  if (!plan->by_arrival && !plan->schedule)
    PETRA_TRY(print_delays(plan, out));
  print_length(plan, out);
  print_rate(plan->config, lr, out);
  petra_describe_numbers(plan->config, out);
  print_files(plan, folder, out);
  PETRA_TRY(petra_estimate_of(plan, plan->program.microbatches, &estimate));
  petra_estimate_print(plan, &estimate, plan->program.microbatches, done, out);
  putc('\n', out);
  fflush(out);
  return PETRA_OK;
}
