/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/program.h"

#include "base/log.h"

#include <string.h>

static const petra_program_ops *const programs[] = {
#define PETRA_PROGRAM_ROW(name) &petra_program_##name,
    PETRA_PROGRAM_LIST(PETRA_PROGRAM_ROW)
#undef PETRA_PROGRAM_ROW
};

int petra_program_count(void) {
  return (int)(sizeof programs / sizeof *programs);
}

const petra_program_ops *petra_program_get(int index) {
  return programs[index];
}

const petra_program_ops *petra_program_find(const char *name) {
  for (int i = 0; i < petra_program_count(); i++)
    if (strcmp(programs[i]->name, name) == 0)
      return programs[i];
  return NULL;
}

bool petra_program_has_layout(const petra_program_options *options, petra_layout layout) {
  const int32_t devices = petra_program_devices(options);
  if (layout == PETRA_LAYOUT_ANY)
    return true;
  if (options->stages % devices || (layout == PETRA_LAYOUT_SINGLE && options->stages != devices))
    return false;
  for (int32_t stage = 1; stage <= options->stages; stage++)
    if (petra_program_device(options, stage) != petra_layout_device(layout, devices, stage))
      return false;
  return true;
}

static petra_status check_layout(const petra_program_ops *program, const petra_program_options *options) {
  static const char *const expected[] = {[PETRA_LAYOUT_SINGLE] = "one stage on each device",
                                         [PETRA_LAYOUT_LOOP] = "a loop",
                                         [PETRA_LAYOUT_V] = "a V",
                                         [PETRA_LAYOUT_ANY] = "any"};
  if (options->chunks < 0)
    return petra_fail(PETRA_SCHEDULE, "program %s: %d chunks per device; expected at least 1", program->name,
                      options->chunks);
  if (options->chunks > 1 && !options->device_of && options->stages % options->chunks)
    return petra_fail(PETRA_SCHEDULE, "program %s: %d stages in %d chunks per device; expected a multiple of %d stages",
                      program->name, options->stages, options->chunks, options->chunks);
  if (!petra_program_has_layout(options, program->layout))
    return petra_fail(PETRA_SCHEDULE, "program %s: %d stages on %d devices in another layout; expected %s",
                      program->name, options->stages, petra_program_devices(options), expected[program->layout]);
  return PETRA_OK;
}

petra_status petra_program_check(const petra_program_ops *program, const petra_program_options *options) {
  if (options->stages < 1)
    return petra_fail(PETRA_SCHEDULE, "program %s: %d stages; expected at least 1", program->name, options->stages);
  if (options->microbatches < 1)
    return petra_fail(PETRA_SCHEDULE, "program %s: %lld microbatches; expected at least 1", program->name,
                      (long long)options->microbatches);
  if (options->accumulate < 1)
    return petra_fail(PETRA_SCHEDULE, "program %s: an update every %lld microbatches; expected at least 1",
                      program->name, (long long)options->accumulate);
  if (options->eval_every > 0 && options->batches < 1)
    return petra_fail(PETRA_SCHEDULE, "program %s: %lld microbatches per epoch; expected at least 1", program->name,
                      (long long)options->batches);
  PETRA_TRY(check_layout(program, options));
  if (options->warmup > 0)
    PETRA_TRY(petra_program_1f1b.check(program, options));
  return program->check ? program->check(program, options) : PETRA_OK;
}

bool petra_program_next(const petra_program_ops *program, const petra_program_options *options, int32_t device,
                        petra_cursor *cursor, petra_action *out, int64_t *round) {
  if (options->warmup == 0)
    return program->next(options, device, cursor, out, round);
  if (!cursor->warm) {
    petra_program_options first = *options;
    first.warmup = 0;
    first.microbatches = options->warmup < options->microbatches ? options->warmup : options->microbatches;
    if (petra_program_1f1b.next(&first, device, cursor, out, round))
      return true;
    *cursor = (petra_cursor){.warm = true};
  }
  const bool more = options->microbatches > options->warmup && program->next(options, device, cursor, out, round);
  cursor->warm = true; /* a program that advances to its next round resets the cursor */
  if (more)
    ++*round;
  return more;
}

int64_t petra_program_delay(const petra_program_ops *program, const petra_program_options *options, int32_t stage) {
  return program->delay ? program->delay(options, stage) : -program->arrival;
}

int64_t petra_program_descent(const petra_program_ops *program, const petra_program_options *options, int32_t stage) {
  if (!program->descent)
    return 0;
  return (stage - 1) / program->descent + petra_program_extra(options, 1) - petra_program_extra(options, stage);
}

int64_t petra_program_rate_index(const petra_program_ops *program, const petra_program_options *options, int32_t stage,
                                 int64_t microbatch) {
  const bool ticks = program->ticks && microbatch >= options->warmup;
  return microbatch + (ticks ? petra_program_delay(program, options, stage) + stage - 1 : 0);
}

int64_t petra_program_loss_epoch(const petra_program_ops *program, const petra_program_options *options,
                                 int64_t microbatch) {
  const bool ticks = program->ticks && microbatch >= options->warmup; /* losses are computed at the last stage */
  return (microbatch + (ticks ? options->stages - 1 : 0)) / options->batches;
}

int64_t petra_program_losses(const petra_program_ops *program, const petra_program_options *options) {
  return program->losses && options->microbatches > options->warmup ? program->losses(options) : options->microbatches;
}

int64_t petra_program_reference(const petra_program_ops *program, const petra_program_options *options,
                                int64_t microbatch, int32_t stage, int32_t of) {
  int64_t done = microbatch; /* number of backwards of stage `of` */
  const int64_t warmup = options->warmup;
  if (program->moment == PETRA_MOMENT_ROUND && microbatch >= warmup)
    done += of - stage + petra_program_extra(options, stage) - petra_program_extra(options, of);
  if (microbatch >= warmup && done < warmup)
    done = warmup;
  return (done < options->microbatches ? done : options->microbatches) / options->accumulate;
}

bool petra_program_probes_alike(const petra_program_ops *program, const petra_program_options *options,
                                int64_t microbatches, int64_t read) {
  const int64_t last = microbatches / options->accumulate;
  if (options->microbatches <= microbatches || last > read / options->accumulate)
    return true;
  for (int32_t stage = 1; stage <= options->stages; stage++)
    for (int32_t of = 1; of <= options->stages; of++)
      if (petra_program_reference(program, options, read - 1, stage, of) > last)
        return false;
  return true;
}

/* Chooses the microbatch in the middle of each part of an epoch: of N microbatches and P parts, floor((2 p + 1) N / (2
 * P)). */
bool petra_program_is_probed(const petra_program_options *options, int64_t per_epoch, int64_t microbatch) {
  int64_t batches = options->batches, end = microbatch + options->accumulate;
  if (per_epoch <= 0)
    return false;
  for (int64_t epoch = microbatch / batches; epoch * batches < end; epoch++) {
    int64_t from = microbatch - epoch * batches;
    int64_t p = from <= 0 ? 0 : (2 * per_epoch * from / batches - 1) / 2;
    while (p < per_epoch && (2 * p + 1) * batches / (2 * per_epoch) < from)
      p++;
    if (p < per_epoch && (2 * p + 1) * batches / (2 * per_epoch) < end - epoch * batches)
      return true;
  }
  return false;
}
