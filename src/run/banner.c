/* SPDX-License-Identifier: Apache-2.0 */
#include "run/banner.h"

#include "base/mem.h"
#include "config/config.h"
#include "base/utf8.h"
#include "checkpoint/checkpoints.h"
#include "setup/describe.h"
#include "run/estimate.h"

#include <string.h>

enum { MAX_DELAYS = 12 };

static petra_status print_delays(const petra_plan *plan, FILE *out) {
  int64_t *delays;
  PETRA_TRY(petra_allocate(&delays, (size_t)plan->stages, sizeof *delays));
  for (int j = 0; j < plan->stages; j++)
    delays[j] = petra_method_distance(&plan->method, plan->stages, j + 1);
  fputs("delays   ", out);
  petra_describe_list(delays, plan->stages, MAX_DELAYS, out);
  fputs(" microbatches from F to B, by stage\n", out);
  petra_free(delays);
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
