/* SPDX-License-Identifier: Apache-2.0 */
/* method.schedule: the order in a file replaces the program of the method, which keeps its weights and its costs. */
#include "base/log.h"
#include "base/mem.h"
#include "setup/plan.h"
#include "setup/schedule_file.h"

#include <string.h>

/* Checks what the file has in common with its one flush and with its whole run. */
static petra_status check_stages(const petra_config *config, const petra_schedule *s, int32_t stages) {
  const char *path = config->method.schedule;
  if (s->stages != stages)
    return petra_config_fail(config, "method.schedule",
                             "%s: %d stages on %d devices; expected the %d stages of this config", path, s->stages,
                             s->devices, stages);
  if (strcmp(config->method.program, "preset") != 0)
    return petra_config_fail(config, "method.program",
                             "%s with method.schedule: %s, whose order replaces that of a program; expected preset",
                             config->method.program, path);
  if (config->method.chunks > 0 && config->method.chunks * s->devices != s->stages)
    return petra_config_fail(config, "method.chunks", "%lld, but %s has %d stages on %d devices; expected 0",
                             (long long)config->method.chunks, path, s->stages, s->devices);
  return PETRA_OK;
}

static petra_status check_length(const petra_config *config, const petra_schedule *s) {
  const char *path = config->method.schedule;
  if (s->flush && config->method.accumulate != s->microbatches)
    return petra_config_fail(
        config, "method.accumulate", "%lld, but a flush of %s has %lld microbatches; expected %lld",
        (long long)config->method.accumulate, path, (long long)s->microbatches, (long long)s->microbatches);
  if (s->flush)
    return PETRA_OK;
  if (config->run.max_microbatches > 0 && config->run.max_microbatches != s->microbatches)
    return petra_config_fail(config, "run.max_microbatches", "%lld, but %s has %lld; expected 0 or the same",
                             (long long)config->run.max_microbatches, path, (long long)s->microbatches);
  if (config->run.drain != PETRA_DRAIN_AUTO)
    return petra_config_fail(config, "run.drain",
                             "with method.schedule, whose order determines the end; expected auto");
  return PETRA_OK;
}

/* Finds if the last stage's F is a separate action, if the file comes that far. */
static petra_status settle_head(const petra_config *config, const petra_method *method, petra_schedule *s) {
  bool shown = false;
  const int64_t *first = &s->first[s->device_of[s->stages - 1] - 1];
  for (int64_t i = first[0]; i < first[1] && !shown; i++)
    shown = s->entries[i].action.stage == s->stages &&
            (s->entries[i].action.kind == PETRA_ACTION_FORWARD || s->entries[i].action.kind == PETRA_ACTION_BACKWARD);
  if (!shown)
    s->split_head = method->split_head;
  else if (config->method.head != PETRA_HEAD_PRESET && method->split_head != s->split_head)
    return petra_config_fail(config, "method.head", "%s, but stage %d of %s has %s; expected preset or %s",
                             method->split_head ? "split" : "fused", s->stages, config->method.schedule,
                             s->split_head ? "F of its own" : "no F", s->split_head ? "split" : "fused");
  return PETRA_OK;
}

petra_status petra_plan_read_order(petra_plan *plan) {
  const petra_config *config = plan->config;
  petra_schedule *s;
  if (!*config->method.schedule)
    return PETRA_OK;
  PETRA_TRY(petra_schedule_file_read(config->method.schedule, &s));
  *(s->flush ? &plan->flush : &plan->schedule) = s;
  PETRA_TRY(check_stages(config, s, plan->stages));
  PETRA_TRY(check_length(config, s));
  PETRA_TRY(settle_head(config, &plan->method, s));
  if (!s->flush)
    PETRA_TRY(petra_schedule_find_moment(s, plan->method.program, config->method.accumulate));
  plan->by_arrival = plan->method.program->arrival;
  plan->method.program = &s->program;
  plan->method.split_head = s->split_head;
  plan->method.chunks = (s->stages + s->devices - 1) / s->devices;
  return PETRA_OK;
}

petra_status petra_plan_measure_order(petra_plan *plan) {
  if (!plan->schedule || plan->distance)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&plan->distance, (size_t)plan->stages, sizeof *plan->distance));
  return petra_schedule_distances(plan->schedule, plan->distance);
}

petra_status petra_plan_check_training(petra_plan *plan, int64_t microbatches) {
  const petra_config *config = plan->config;
  const petra_schedule *schedule = plan->schedule ? plan->schedule : plan->flush;
  if (!schedule || !*config->method.schedule)
    return PETRA_OK;
  const petra_schedule_demands demands = {.accumulate = config->method.accumulate,
                                          .batches = plan->program.batches,
                                          .eval_every = schedule->flush ? 0 : config->run.eval_every,
                                          .double_buffer = plan->method.forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER};
  if (!schedule->flush && schedule->microbatches > microbatches)
    return petra_config_fail(config, "method.schedule",
                             "%s: %lld microbatches, but %lld epochs have %lld; expected more epochs",
                             config->method.schedule, (long long)schedule->microbatches, (long long)config->run.epochs,
                             (long long)microbatches);
  PETRA_TRY(petra_schedule_check_training(schedule, config->method.schedule, &demands));
  if (config->probe.per_epoch > 0 && schedule->program.moment == PETRA_MOMENT_NONE)
    return petra_config_fail(
        config, "probe.per_epoch",
        plan->by_arrival ? "%lld with method.schedule: %s and method %s, whose references need the clock of the "
                           "recorded run, which a schedule does not contain; expected 0"
                         : "%lld with method.schedule: %s and method %s: the order is neither synchronous nor one that "
                           "petra schedule prints, so the weights at the time of a backward are undefined; expected 0",
        (long long)config->probe.per_epoch, config->method.schedule, plan->method.name);
  return petra_plan_measure_order(plan);
}
