/* SPDX-License-Identifier: Apache-2.0 */
/* petra schedule: the orders of a method's actions, or of a file's, as text or as a chart; a file's are
 * checked first. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/plan.h"
#include "cli/command.h"
#include "cli/gantt.h"
#include "plan/schedule_file.h"

#include <jansson.h>

/* How often a pipeline is filled where the config does not say how many microbatches there are: a chart shows the first microbatches
 * coming back; an order in text is long enough for `petra simulate` to find a steady state in it. */
enum { CHART_FILLINGS = 1, TEXT_FILLINGS = 2 };

/* What is printed. */
typedef struct printed {
  petra_schedule *schedule;
  bool recomputes;
  int engines;
} printed;

/* The orders of the config's method. */
static petra_status from_config(const petra_arguments *arguments, const petra_schedule_text *text, printed *p) {
  const petra_config_text source = {arguments->input, text->text, text->size};
  petra_config *config;
  petra_plan plan;
  PETRA_TRY(petra_config_load_text(&source, arguments->sets, arguments->set_count, &config));
  petra_status status = petra_plan_simulated(&plan, config, arguments->gantt ? CHART_FILLINGS : TEXT_FILLINGS);
  if (status == PETRA_OK && arguments->gantt) /* a unit of time for every microbatch, at least */
    status = petra_gantt_check((int64_t)petra_program_devices(&plan.program) * config->cluster.engines,
                               plan.program.microbatches);
  if (status == PETRA_OK) {
    p->recomputes = plan.method.recomputes;
    p->engines = (int)config->cluster.engines;
    status = petra_schedule_record(plan.method.program, &plan.program, &p->schedule);
  }
  petra_plan_fini(&plan);
  petra_config_destroy(config);
  return status;
}

/* A schedule of a file, checked. */
static petra_status from_schedule(const petra_arguments *arguments, const petra_schedule_text *text, printed *p) {
  const char *name = petra_schedule_file_name(arguments->input);
  if (arguments->set_count)
    return petra_fail(PETRA_USAGE, "%s: a schedule has no keys for --set", name);
  PETRA_TRY(petra_schedule_parse(name, text->text, text->size, &p->schedule));
  return petra_schedule_check(p->schedule, name);
}

/* Of an order that ends too early every figure would be wrong. */
static void warn_without_backward(const petra_schedule *schedule) {
  int64_t microbatches = 0;
  for (int64_t i = schedule->first[0]; i < schedule->first[1]; i++) {
    const petra_action *action = &schedule->entries[i].action;
    if (action->stage == 1 && action->kind == PETRA_ACTION_BACKWARD)
      return;
    microbatches += action->stage == 1 && action->kind == PETRA_ACTION_FORWARD;
  }
  petra_log(PETRA_LOG_WARNING,
            "none of %lld microbatches comes back to stage 1: the order ends before; expected a larger "
            "run.max_microbatches, or run.drain: true",
            (long long)microbatches);
}

static json_t *device_json(const petra_schedule *schedule, int32_t device) {
  json_t *list = json_array();
  for (int64_t i = schedule->first[device]; i < schedule->first[device + 1]; i++) {
    char text[40];
    petra_action_print(&schedule->entries[i].action, text, sizeof text);
    petra_json_append(&list, json_string(text));
  }
  return list;
}

static petra_status print_json(const petra_schedule *schedule) {
  json_t *devices = json_array();
  for (int32_t d = 0; d < schedule->devices; d++)
    petra_json_append(&devices, device_json(schedule, d));
  return petra_json_print_new(json_pack("{s:o}", "devices", devices));
}

static petra_status run(const petra_arguments *arguments) {
  printed p = {.engines = 1};
  petra_schedule_text text;
  if (!arguments->input)
    return petra_fail(
        PETRA_USAGE, "petra schedule needs a config or a schedule ('-' for standard input); see petra schedule --help");
  PETRA_TRY(petra_schedule_file_peek(arguments->input, &text));
  petra_status status = text.is_schedule ? from_schedule(arguments, &text, &p) : from_config(arguments, &text, &p);
  petra_free(text.text);
  if (status == PETRA_OK) {
    warn_without_backward(p.schedule);
    if (arguments->json)
      status = print_json(p.schedule);
    else if (arguments->gantt)
      status = petra_gantt_print(p.schedule, p.recomputes, p.engines, stdout);
    else
      status = petra_schedule_print(p.schedule, stdout);
  }
  petra_schedule_destroy(p.schedule);
  return status;
}

const petra_command petra_command_schedule = {
    .name = "schedule",
    .summary = "prints the schedule of a method, or checks one from a file",
    .arguments = "CONFIG.yaml | FILE.schedule [--gantt] [--json]",
    .help =
        "Prints what every device does, in its order, one line a device: 2F0 is the forward of microbatch 0 at\n"
        "stage 2; B is the backward, W a weight gradient that is split from it, U an update with the last\n"
        "microbatch that it covers, E the moment whose weights are evaluated. Microbatches: run.max_microbatches,\n"
        "or where that is 0 as many as fill the pipeline twice (--gantt: once) and 8 more. | ends a round: nothing of "
        "the next one begins before. || ends one of the whole\n"
        "network: nothing behind it begins before every device has done what it has before its || of the same\n"
        "number.\n\n"
        "A file, or a pipe, whose first line begins with '1:' is a schedule in that form. It is checked, and\n"
        "printed if it can run; else the first wrong action is named. method.schedule names such a file, to run it.\n\n"
        "--gantt draws when everything runs under unit costs: F 1, B 2 (1 where W, which takes 1, is split off), 1\n"
        "more with reconstruction or recomputation; a | follows where an update ends.\n"
        "--json: {\"devices\": [[\"1F0\", ...], ...]}.\n",
    .takes_config = true,
    .options =
        (const petra_option[]){PETRA_OPTION("gantt", NULL, gantt,
                                            "a chart over time, of at most 100,000 cells (rows times units of time)"),
                               {0}},
    .run = run};
