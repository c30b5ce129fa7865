/* petra schedule: the orders of a method's actions, or of a file's, as text or as a chart; a file's are
 * checked first. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/gantt.h"
#include "cli/setup.h"
#include "schedule/check.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

enum { DEFAULT_MICROBATCHES = 8 };

/* What is printed. */
typedef struct printed {
  petra_schedule *schedule;
  bool recomputes;
  int engines;
} printed;

/* The whole file. Free with petra_free. */
static petra_status read_text(const char *path, char **out, size_t *size) {
  FILE *file = fopen(path, "rb");
  char *text = NULL;
  size_t used = 0, most = 0;
  petra_status status = PETRA_OK;
  if (!file)
    return petra_fail(PETRA_IO, "%s: %s", path, strerror(errno));
  do {
    char *larger;
    PETRA_TRY_GOTO(status, petra_allocate_raw(&larger, most ? 2 * most : 4096, 1), done);
    if (text)
      memcpy(larger, text, used);
    petra_free(text);
    text = larger;
    most = most ? 2 * most : 4096;
    used += fread(text + used, 1, most - used, file);
  } while (used == most);
  if (ferror(file))
    status = petra_fail(PETRA_IO, "%s: %s", path, strerror(errno));
done:
  fclose(file);
  if (status != PETRA_OK) {
    petra_free(text);
    return status;
  }
  *out = text;
  *size = used;
  return PETRA_OK;
}

/* The orders of the config's method. */
static petra_status from_config(const petra_arguments *arguments, printed *p) {
  petra_config *config;
  petra_setup setup;
  PETRA_TRY(petra_arguments_config(arguments, "schedule", &config));
  petra_status status = petra_setup_plan(&setup, config);
  if (status == PETRA_OK) {
    const petra_method *method = &setup.method;
    int64_t microbatches = config->run.max_microbatches ? config->run.max_microbatches : DEFAULT_MICROBATCHES;
    const petra_program_options options = {.stages = setup.partition.stages,
                                           .chunks = method->chunks,
                                           .microbatches = microbatches,
                                           .accumulate = config->method.accumulate,
                                           .drain = config->run.drain == PETRA_DRAIN_TRUE ||
                                                    !method->program->ticks,
                                           .batches = microbatches,
                                           .split_head = method->split_head};
    p->recomputes = method->recomputes;
    p->engines = (int)config->cluster.engines;
    status = petra_schedule_record(method->program, &options, &p->schedule);
    petra_setup_fini(&setup);
  }
  petra_config_destroy(config);
  return status;
}

/* A file with a schedule, checked; *found tells whether it is one. */
static petra_status from_file(const petra_arguments *arguments, printed *p, bool *found) {
  char *text = NULL;
  size_t size = 0;
  *found = false;
  if (!arguments->input || strcmp(arguments->input, "-") == 0)
    return PETRA_OK;
  /* A pipe can be read only once; the config reader takes that. */
  FILE *file = fopen(arguments->input, "rb");
  bool seekable = file && fseek(file, 0, SEEK_END) == 0;
  if (file)
    fclose(file);
  if (!seekable)
    return PETRA_OK;
  PETRA_TRY(read_text(arguments->input, &text, &size));
  *found = petra_schedule_recognise(text, size);
  petra_status status = PETRA_OK;
  if (*found && arguments->set_count)
    status = petra_fail(PETRA_USAGE, "%s: a schedule has no keys for --set", arguments->input);
  else if (*found)
    status = petra_schedule_parse(arguments->input, text, size, &p->schedule);
  petra_free(text);
  if (*found && status == PETRA_OK)
    status = petra_schedule_check(p->schedule, arguments->input, NULL);
  return status;
}

static petra_status device_json(const petra_schedule *schedule, int32_t device, json_t *list) {
  for (int64_t i = schedule->first[device]; i < schedule->first[device + 1]; i++) {
    char text[40];
    petra_action_print(&schedule->entries[i].action, text, sizeof text);
    if (json_array_append_new(list, json_string(text)) != 0)
      return petra_fail(PETRA_NO_MEMORY, "no memory for the schedule");
  }
  return PETRA_OK;
}

static petra_status print_json(const petra_schedule *schedule) {
  json_t *root = json_object(), *devices = json_array();
  petra_status status = petra_json_set(root, "devices", devices);
  for (int32_t d = 0; d < schedule->devices && status == PETRA_OK; d++) {
    json_t *list = json_array();
    status = json_array_append_new(devices, list) == 0
                 ? device_json(schedule, d, list)
                 : petra_fail(PETRA_NO_MEMORY, "no memory for the schedule");
  }
  if (status == PETRA_OK)
    status = petra_json_print(root, stdout);
  json_decref(root);
  return status;
}

static petra_status run(const petra_arguments *arguments) {
  printed p = {.engines = 1};
  bool found;
  petra_status status = from_file(arguments, &p, &found);
  if (status == PETRA_OK && !found)
    status = from_config(arguments, &p);
  if (status == PETRA_OK) {
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
    .help = "Prints what every device does, in its order, one line a device: 2F0 is the forward of "
            "microbatch 0 at stage 2; B is the\n"
            "backward, W a weight gradient that is split from it, U an update with the last microbatch that "
            "it covers, E the moment\n"
            "whose weights are evaluated. Microbatches: run.max_microbatches, or 8 where that is 0. | ends a "
            "round: nothing of the\n"
            "next one begins before.\n\n"
            "A file whose first line begins with '1:' is a schedule in that form. It is checked, and printed "
            "if it can run; else the\n"
            "first wrong action is named.\n\n"
            "--gantt draws when everything runs under unit costs: F 1, B 2 (1 where W, which takes 1, is "
            "split off), 1 more with\n"
            "reconstruction or recomputation; a | follows where an update ends. --json: {\"devices\": "
            "[[\"1F0\", ...], ...]}.\n",
    .takes_config = true,
    .takes_gantt = true,
    .run = run};
