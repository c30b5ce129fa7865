/* SPDX-License-Identifier: Apache-2.0 */
/* petra data: verifies, converts and generates data sets. */
#include "cli/data.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#include <string.h>

typedef struct data_action {
  const char *name;
  bool writes;       /* needs --output */
  bool needs_config; /* otherwise the defaults suffice */
  petra_status (*run)(const petra_arguments *arguments, const petra_config *config);
} data_action;

static const data_action actions[] = {{"verify", false, true, petra_data_verify},
                                      {"convert", true, true, petra_data_convert},
                                      {"generate", true, false, petra_data_convert}};
enum { ACTIONS = sizeof actions / sizeof *actions };

static petra_status check(const data_action *action, const petra_arguments *arguments) {
  if (action->writes && !arguments->output)
    return petra_fail(PETRA_USAGE, "petra data %s needs --output FILE; see petra data --help", action->name);
  if (!action->writes && arguments->output)
    return petra_fail(PETRA_USAGE, "petra data %s writes no file and takes no --output; see petra data --help",
                      action->name);
  if (action->needs_config && !arguments->input)
    return petra_fail(PETRA_USAGE, "petra data %s needs a config file ('-' for standard input); see petra data --help",
                      action->name);
  return PETRA_OK;
}

static petra_status run(const petra_arguments *arguments) {
  const data_action *action = NULL;
  const char *names[ACTIONS + 1] = {NULL};
  char near[PETRA_NEAREST_LONGEST + 1];
  petra_config *config;
  for (int i = 0; i < ACTIONS; i++) {
    names[i] = actions[i].name;
    if (strcmp(arguments->action, names[i]) == 0)
      action = &actions[i];
  }
  if (!action)
    return petra_fail(PETRA_USAGE, "petra data: no action '%s'; expected verify, convert or generate%s",
                      arguments->action, petra_nearest_hint(near, sizeof near, "", arguments->action, names));
  PETRA_TRY(check(action, arguments));
  PETRA_TRY(petra_config_load(arguments->input, arguments->sets, arguments->set_count, &config));
  if (!action->needs_config)
    config->data.set = PETRA_SET_SHAPES;
  petra_status status = action->run(arguments, config);
  petra_config_destroy(config);
  return status;
}

const petra_command petra_command_data = {
    .name = "data",
    .summary = "verifies, converts or generates data sets",
    .arguments = "verify CONFIG.yaml | convert CONFIG.yaml --output FILE | generate [CONFIG.yaml] --output FILE",
    .help = "verify    Reads the whole data set of the config (data.*). For images, prints their number, their sizes,\n"
            "          the means and deviations of the channels, and the images per class. For tokens, prints their\n"
            "          number, the number of different tokens, their entropy and, if it is known, the lowest possible\n"
            "          loss. Every error in the data, and everything that petra train would refuse, is one line on\n"
            "          standard error; the exit status is then 1.\n"
            "convert   Writes the data set of the config as an HDF5 file for data.set: hdf5, or tokens. Images of an\n"
            "          image folder are written as an evaluation sees them: resized to data.resize, then cropped to\n"
            "          the centre of data.image_size.\n"
            "generate  Writes generated images (data.set: shapes) in the same way, whatever the data set of the\n"
            "          config is.\n"
            "data.limit and data.eval_limit apply to all three actions. data.workers is the number of threads.",
    .takes_config = true,
    .actions = "verify, convert or generate",
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "FILE", output, "the file to write; an existing file is replaced"), {0}},
    .run = run};

/* Reads the records of a data set in portions, with several threads. */
enum { ROOM_MAX = 1024 };

static const int64_t room_bytes = 32000000;

petra_status petra_data_each(const petra_dataset *set, int threads,
                             petra_status (*take)(void *context, const petra_data_records *records), void *context) {
  const int64_t size = (int64_t)3 * set->height * set->width, fit = room_bytes / size;
  const int64_t room = fit < 1 ? 1 : fit > ROOM_MAX ? ROOM_MAX : fit;
  petra_data_records records = {0};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.pixels, (size_t)room, (size_t)size), done);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.labels, (size_t)room, sizeof *records.labels), done);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.statuses, (size_t)room, sizeof *records.statuses), done);
  for (; records.first < set->count; records.first += records.count) {
    const int64_t left = set->count - records.first;
    records.count = left < room ? left : room;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < records.count; i++)
      records.statuses[i] = set->ops->read(set, records.first + i, records.pixels + i * size, &records.labels[i]);
    for (int64_t i = 0; i < records.count; i++)
      if (records.statuses[i] == PETRA_NO_MEMORY || records.statuses[i] == PETRA_INTERNAL)
        PETRA_TRY_GOTO(status, records.statuses[i], done);
    PETRA_TRY_GOTO(status, take(context, &records), done);
  }
done:
  petra_free(records.pixels);
  petra_free(records.labels);
  petra_free(records.statuses);
  return status;
}
