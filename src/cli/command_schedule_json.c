/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of petra schedule: the plan of a training, written as it is computed, because a million actions do not fit
 * into an object of jansson. */

#include "base/json.h"
#include "base/mem.h"
#include "base/release.h"
#include "cli/command.h"
#include "run/folder.h"
#include "record/replay.h"

#include <jansson.h>

static petra_status put_member(const char *key, json_t *value, FILE *out) {
  fprintf(out, "\"%s\": ", key);
  PETRA_TRY(petra_json_put_new(value, out));
  fputs(",\n", out);
  return PETRA_OK;
}

static petra_status put_integer(const char *key, int64_t value, FILE *out) {
  return put_member(key, json_integer(value), out);
}

/* --- the orders of the devices --- */

static void put_device(const petra_schedule *schedule, int32_t device, FILE *out) {
  const char *between = "\"";
  char text[40];
  for (int64_t i = schedule->first[device]; i < schedule->first[device + 1]; i++) {
    petra_action_print(&schedule->entries[i].action, text, sizeof text);
    fprintf(out, "%s%s", between, text);
    between = schedule->entries[i].joined ? "+" : "\", \"";
  }
  if (schedule->first[device + 1] > schedule->first[device])
    fputc('"', out);
}

static void put_schedule(const petra_schedule *schedule, FILE *out) {
  fputs("\"devices\": [\n", out);
  for (int32_t d = 0; d < schedule->devices; d++) {
    fputc('[', out);
    put_device(schedule, d, out);
    fputs(d + 1 < schedule->devices ? "],\n" : "]\n]", out);
  }
}

/* Prints the actions of each device in the order in which they start. */
static petra_status put_rows_by_device(const petra_replay *replay, FILE *out) {
  const petra_program_options *program = &replay->plan.program;
  const int32_t devices = petra_program_devices(program);
  PETRA_FREED int64_t *place = NULL, *rows = NULL;
  PETRA_TRY(petra_allocate(&place, (size_t)devices + 1, sizeof *place));
  PETRA_TRY(petra_allocate_raw(&rows, (size_t)replay->count, sizeof *rows));
  for (int64_t i = 0; i < replay->count; i++)
    place[petra_program_device(program, replay->rows[i].action.stage)]++;
  for (int32_t d = 1; d <= devices; d++)
    place[d] += place[d - 1]; /* place[d - 1]: the next place of device d */
  for (int64_t i = 0; i < replay->count; i++)
    rows[place[petra_program_device(program, replay->rows[i].action.stage) - 1]++] = i;
  fputs("\"devices\": [\n", out);
  for (int32_t d = 0; d < devices; d++) {
    fputc('[', out);
    for (int64_t i = d ? place[d - 1] : 0; i < place[d]; i++) {
      char text[40];
      petra_action_print(&replay->rows[rows[i]].action, text, sizeof text);
      fprintf(out, "%s\"%s\"", i == (d ? place[d - 1] : 0) ? "" : ", ", text);
    }
    fputs(d + 1 < devices ? "],\n" : "]\n]", out);
  }
  return PETRA_OK;
}

petra_status petra_schedule_print_json(const petra_schedule *schedule, FILE *out) {
  fputs("{\n", out);
  PETRA_TRY(put_integer("stages", schedule->stages, out));
  PETRA_TRY(put_integer("microbatches", schedule->microbatches, out));
  put_schedule(schedule, out);
  fputs("\n}\n", out);
  return petra_json_end(out);
}

/* --- the plan --- */

static json_t *method_json(const petra_method *method) {
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:I}", "name", method->name, "program",
                   method->program->name, "forward_weights", petra_weights_name(method->forward_weights),
                   "backward_weights", petra_weights_name(method->backward_weights), "invert_weights",
                   petra_weights_name(method->invert_weights), "keep", petra_keep_name(method->keep), "head",
                   method->split_head ? "split" : "fused", "split_backward", method->program->split_backward,
                   "sync_period", (json_int_t)method->sync_period);
}

static petra_status put_texts(const petra_replay *replay, FILE *out) {
  PETRA_FREED char *config = NULL;
  size_t size;
  PETRA_TRY(put_member("format", json_string("petra-plan"), out));
  PETRA_TRY(put_integer("version", PETRA_SCHEMA_SCHEDULE, out));
  PETRA_TRY(put_member("petra_version", json_string(petra_version()), out));
  PETRA_TRY(petra_folder_expand_config(replay->config, &config, &size));
  PETRA_TRY(put_member("config", petra_json_string(config), out));
  return put_member("method", method_json(&replay->plan.method), out);
}

static petra_status put_sizes(const petra_replay *replay, FILE *out) {
  const petra_program_options *program = &replay->plan.program;
  PETRA_TRY(put_integer("stages", program->stages, out));
  PETRA_TRY(put_integer("microbatches", program->microbatches, out));
  PETRA_TRY(put_integer("accumulate", program->accumulate, out));
  PETRA_TRY(put_integer("epoch_microbatches", program->batches, out));
  PETRA_TRY(put_integer("warmup_microbatches", program->warmup, out));
  return put_member("drain", json_boolean(replay->returned == program->microbatches), out);
}

static json_t *delay_json(double delay) {
  return delay < 0 ? json_null() : json_real(delay);
}

static petra_status put_stages(const petra_replay *replay, FILE *out) {
  fputs("\"stage\": [\n", out);
  for (int32_t stage = 1; stage <= replay->plan.stages; stage++) {
    const petra_stage_delay delay = petra_replay_delay(replay, stage);
    PETRA_TRY(petra_json_put_new(json_pack("{s:i, s:i, s:o, s:o, s:o}", "stage", stage, "device",
                                           petra_program_device(&replay->plan.program, stage), "delay_microbatches",
                                           delay.microbatches < 0 ? json_null() : json_integer(delay.microbatches),
                                           "delay_updates", delay_json(delay.updates), "descent_updates",
                                           delay_json(delay.descent)),
                                 out));
    fputs(stage < replay->plan.stages ? ",\n" : "\n],\n", out);
  }
  return PETRA_OK;
}

/* Prints the versions of the end-to-end networks of a microbatch: a list per stage. */
static void put_references(const petra_replay *replay, int64_t window, int64_t slot, FILE *out) {
  const int32_t stages = replay->plan.stages;
  for (int32_t stage = 1; stage <= stages; stage++)
    for (int32_t of = 1; of <= stages; of++)
      fprintf(out, "%s%lld%s",
              of > 1      ? ", "
              : stage > 1 ? "], ["
                          : "[[",
              (long long)petra_replay_reference(replay, window, slot, stage, of),
              of == stages && stage == stages ? "]]" : "");
}

static void put_probes(const petra_replay *replay, FILE *out) {
  const int64_t slots = replay->plan.program.accumulate;
  fputs("\"probes\": [", out);
  for (int64_t window = 0; window < replay->window_count; window++) {
    fprintf(out, "%s\n{\"microbatch\": %lld, \"microbatches\": %lld, \"end_to_end\": [", window ? "," : "",
            (long long)replay->windows[window], (long long)slots);
    for (int64_t slot = 0; slot < slots; slot++) {
      fputs(slot ? ", " : "", out);
      put_references(replay, window, slot, out);
    }
    fputs("]}", out);
  }
  fputs(replay->window_count ? "\n],\n" : "],\n", out);
}

/* Prints a number, or null if it is negative. */
static void put_number(int64_t number, FILE *out) {
  if (number < 0)
    fputs(", null", out);
  else
    fprintf(out, ", %lld", (long long)number);
}

static void put_row(const petra_replay *replay, int64_t at, FILE *out) {
  const petra_trace_row *row = &replay->rows[at];
  const petra_action *action = &row->action;
  const bool updates = action->kind == PETRA_ACTION_UPDATE;
  fprintf(out, "%s\n[\"%c\", %d, %lld, %d, %lld, %lld", at ? "," : "", petra_action_letter(action->kind), action->stage,
          (long long)action->microbatch, petra_program_device(&replay->plan.program, action->stage),
          (long long)row->start_ns, (long long)row->end_ns);
  put_number(updates                                        ? row->result.version_written
             : action->kind == PETRA_ACTION_WEIGHT_GRADIENT ? -1
                                                            : row->result.version_read,
             out);
  put_number(replay->inverse[at], out);
  put_number(replay->kept_until[at], out);
  if (updates)
    fprintf(out, ", %.17g", petra_replay_rate(replay, action));
  else
    fputs(", null", out);
  put_number(petra_replay_epoch(replay, action), out);
  fputc(']', out);
}

petra_status petra_plan_print_json(const petra_replay *replay, const petra_schedule *schedule, FILE *out) {
  fputs("{\n", out);
  PETRA_TRY(put_texts(replay, out));
  PETRA_TRY(put_sizes(replay, out));
  PETRA_TRY(put_stages(replay, out));
  put_probes(replay, out);
  if (schedule)
    put_schedule(schedule, out);
  else
    PETRA_TRY(put_rows_by_device(replay, out));
  fputs(",\n\"columns\": [\"kind\", \"stage\", \"microbatch\", \"device\", \"start_ns\", \"end_ns\", \"weights\", "
        "\"inverse_weights\", \"kept_until\", \"learning_rate\", \"epoch\"],\n\"actions\": [",
        out);
  for (int64_t i = 0; i < replay->count; i++)
    put_row(replay, i, out);
  fputs("\n]\n}\n", out);
  return petra_json_end(out);
}
