/* SPDX-License-Identifier: Apache-2.0 */
/* petra inspect: the stage table of a config. The summary of a run is written in Python. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "cli/command.h"
#include "cli/rows.h"
#include "setup/describe.h"
#include "run/banner.h"
#include "predict/memory.h"
#include "sim/ledger.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool has_sequences(const petra_plan *plan) {
  return plan->model.blocks[0].shape_out.kind == PETRA_TENSOR_SEQUENCE;
}

/* --- the analytic memory of a plan, for `petra inspect --memory`: sim/ledger.h filled from the network --- */

/* One of the four rows of table 3. */
typedef struct memory_row {
  petra_ledger_rule rule;
  petra_ledger_bytes *stage; /* one per stage */
  int64_t total_bytes;
  double saving; /* relative to the first row, 0 .. 1 */
} memory_row;

/* The rows are in the order of table 3: inputs and weights are kept; only inputs; only weights; neither. */
enum { ROWS = 4 };

typedef struct memory_table {
  memory_row row[ROWS];
} memory_table;

static petra_status fill_row(const petra_plan *plan, memory_row *row) {
  petra_ledger_bytes sum = {0};
  PETRA_TRY(petra_allocate(&row->stage, (size_t)plan->partition.stages, sizeof *row->stage));
  for (int j = 0; j < plan->partition.stages; j++) {
    petra_stage_summary stage;
    petra_plan_stage_summary(plan, j, &stage);
    for (int i = 0; i < petra_plan_stage_blocks(plan, j); i++) {
      petra_ledger_block block;
      petra_ledger_bytes bytes;
      petra_ledger_block_of(plan, petra_plan_stage_block(plan, j, i), stage.delay, &block);
      PETRA_TRY(petra_ledger_block_bytes(&row->rule, &block, &bytes));
      PETRA_TRY(petra_ledger_add(&row->stage[j], &bytes));
    }
    PETRA_TRY(petra_ledger_add(&sum, &row->stage[j]));
  }
  row->total_bytes = petra_ledger_total(&sum);
  return PETRA_OK;
}

/* Fills the rows. Call free_rows even after a failure. */
static petra_status fill_rows(const petra_plan *plan, petra_accounting accounting, memory_table *table) {
  for (memory_row *row = table->row; row < table->row + ROWS; row++) {
    row->rule = petra_ledger_rule_of(plan, accounting);
    row->rule.inputs_kept = row < table->row + 2;
    row->rule.weights_kept = (row - table->row) % 2 == 0;
    PETRA_TRY(fill_row(plan, row));
    row->saving = 1 - (double)row->total_bytes / (double)table->row[0].total_bytes;
  }
  return PETRA_OK;
}

static void free_rows(memory_table *table) {
  for (int i = 0; i < ROWS; i++)
    petra_free(table->row[i].stage);
}

/* Returns NULL if memory runs out. */
static json_t *stages_json(const memory_row *row, int stages) {
  json_t *list = json_array();
  for (int j = 0; j < stages; j++) {
    const petra_ledger_bytes *b = &row->stage[j];
    petra_json_append(&list,
                      json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "stage", j + 1, "parameters",
                                (json_int_t)b->parameters, "statistics", (json_int_t)b->statistics, "input",
                                (json_int_t)b->input, "input_buffer", (json_int_t)b->input_buffer, "weight_buffer",
                                (json_int_t)b->weight_buffer, "total", (json_int_t)petra_ledger_total(b)));
  }
  return list;
}

static void add_memory_row(petra_rows *table, const memory_row *row, int stages) {
  petra_rows_next(table);
  petra_row_choice(table, "inputs kept", "inputs_kept", row->rule.inputs_kept, "yes", "no");
  petra_row_choice(table, "weights kept", "weights_kept", row->rule.weights_kept, "yes", "no");
  petra_row_integer(table, NULL, "total_bytes", row->total_bytes);
  petra_row_real(table, "GB", NULL, (double)row->total_bytes, 1e-9, 2);
  petra_row_real(table, "saving %", "saving", row->saving, 100, 1);
  if (petra_rows_have(table, "stages_bytes"))
    petra_row_member(table, "stages_bytes", stages_json(row, stages));
}

static petra_status make_memory_rows(const petra_plan *plan, const memory_table *memory, bool json, petra_rows **out) {
  PETRA_TRY(petra_rows_create(json, out));
  for (int i = 0; i < ROWS; i++)
    add_memory_row(*out, &memory->row[i], plan->partition.stages);
  return PETRA_OK;
}

/* Returns the member `memory` of `petra inspect --json` (*out is NULL if JSON ran out of memory). */
static petra_status memory_json(const petra_plan *plan, petra_accounting accounting, json_t **out) {
  const bool tokens = plan->model.input.kind == PETRA_TENSOR_SEQUENCE;
  PETRA_FINISHED(free_rows) memory_table memory = {0};
  petra_rows *list;
  PETRA_TRY(fill_rows(plan, accounting, &memory));
  PETRA_TRY(make_memory_rows(plan, &memory, true, &list));
  *out =
      json_pack("{s:s, s:i, s:o}", "accounting", petra_accounting_name(accounting), tokens ? "context" : "image_size",
                tokens ? plan->model.input.positions : plan->model.input.height, "rows", petra_rows_list(list));
  return PETRA_OK;
}

/* Adds the memory of a stage. Row 4 is the memory that is needed in any case; inputs and weights add the difference
 * between row 1 and row 4. */
static void add_stage_memory(petra_rows *table, const memory_row *rows, int stage, const char *name) {
  const petra_ledger_bytes *maximum = &rows[0].stage[stage], *least = &rows[ROWS - 1].stage[stage];
  const struct {
    const char *heading;
    int64_t bytes;
  } columns[] = {{"parameters", least->parameters},
                 {"statistics", least->statistics},
                 {"input", least->input},
                 {"input buffer", least->input_buffer},
                 {"together", petra_ledger_total(least)},
                 {"+ inputs kept", maximum->input_buffer - least->input_buffer},
                 {"+ weights kept", maximum->weight_buffer}};
  petra_rows_next(table);
  petra_row_integer(table, "stage", NULL, stage + 1);
  petra_row_text(table, "blocks", NULL, name);
  for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
    petra_row_real(table, columns[c].heading, NULL, (double)columns[c].bytes, 1e-6, 2);
}

static petra_status print_stages(const petra_plan *plan, const memory_row *rows) {
  petra_rows *table;
  PETRA_TRY(petra_rows_create(false, &table));
  for (int j = 0; j < plan->partition.stages; j++) {
    petra_stage_summary stage;
    petra_plan_stage_summary(plan, j, &stage);
    add_stage_memory(table, rows, j, stage.name);
  }
  return petra_rows_print(table);
}

static petra_status memory_print(const petra_plan *plan, petra_accounting accounting) {
  PETRA_FINISHED(free_rows) memory_table memory = {0};
  petra_rows *table;
  PETRA_TRY(fill_rows(plan, accounting, &memory));
  const petra_stream_shape *input = &plan->model.input;
  printf("\nmemory in MB, accounting %s, ", petra_accounting_name(accounting));
  if (input->kind == PETRA_TENSOR_SEQUENCE)
    printf("windows of %d tokens:\n\n", input->positions);
  else
    printf("images of %dx%d:\n\n", input->height, input->width);
  PETRA_TRY(print_stages(plan, memory.row));
  printf("\n");
  PETRA_TRY(make_memory_rows(plan, &memory, false, &table));
  PETRA_TRY(petra_rows_print(table));
  if (has_sequences(plan)) /* such a network has no convolutions */
    puts("\nMB: 10^6 bytes, GB: 10^9; input buffer: inputs that wait for their backward, even if the method stores no "
         "inputs");
  else
    puts("\nMB: 10^6 bytes, GB: 10^9; parameters with a bias for each convolution, as in the paper's network; input "
         "buffer: inputs\nthat wait for their backward, even if the method stores no inputs");
  return PETRA_OK;
}

static const long largest_image = 4096; /* pixels per side: far above any data set, and counts stay within 63 bits */

/* Adds channels, height and width; for a sequence: positions and features. */
static void add_shape(petra_rows *rows, const char *heading, const char *key, const petra_stream_shape *shape,
                      int streams) {
  const char *both = streams == 2 ? "2 x " : "";
  if (shape->kind == PETRA_TENSOR_SEQUENCE) {
    petra_row_cell(rows, heading, PETRA_TABLE_RIGHT, "%s%dx%d", both, shape->positions, shape->features);
    if (petra_rows_have(rows, key))
      petra_row_member(
          rows, key,
          json_pack("{s:i, s:i, s:i}", "streams", streams, "positions", shape->positions, "features", shape->features));
  } else {
    petra_row_cell(rows, heading, PETRA_TABLE_RIGHT, "%s%dx%dx%d", both, shape->channels, shape->height, shape->width);
    if (petra_rows_have(rows, key))
      petra_row_member(rows, key,
                       json_pack("{s:i, s:i, s:i, s:i}", "streams", streams, "channels", shape->channels, "height",
                                 shape->height, "width", shape->width));
  }
}

static petra_status make_stages(const petra_plan *plan, bool json, petra_rows **out) {
  static char flops[32]; /* static, because it must outlive the rows */
  snprintf(flops, sizeof flops, "MFLOP/%s", petra_sample_words_of(petra_sample_kind_of(plan->config))->sample);
  PETRA_TRY(petra_rows_create(json, out));
  petra_rows *rows = *out;
  for (int j = 0; j < plan->partition.stages; j++) {
    petra_stage_summary s;
    petra_plan_stage_summary(plan, j, &s);
    petra_rows_next(rows);
    petra_row_integer(rows, "stage", "stage", j + 1);
    petra_row_text(rows, "blocks", "name", s.name);
    petra_row_choice(rows, "reversible", "reversible", s.reversible, "yes", "no");
    add_shape(rows, has_sequences(plan) ? "input TxC" : "input CxHxW", "input", &s.in, s.streams_in);
    add_shape(rows, has_sequences(plan) ? "output TxC" : "output CxHxW", "output", &s.out, s.streams_out);
    petra_row_integer(rows, "parameters", "parameters", s.parameters);
    petra_row_megabytes(rows, flops, "forward_flops", s.forward_flops);
    petra_row_megabytes(rows, "MB up", "forward_bytes", s.forward_bytes);
    petra_row_megabytes(rows, "MB down", "backward_bytes", s.backward_bytes);
    petra_row_integer(rows, "delay", "delay", s.delay);
    petra_row_integer(rows, "lag", "lag", s.lag);
  }
  return PETRA_OK;
}

/* Prints the JSON. `accounting` is the accounting of the member `memory`; NULL: there is no such member. */
static petra_status print_json(const petra_plan *plan, int64_t parameters, int64_t flops,
                               const petra_accounting *accounting) {
  const petra_config *config = plan->config;
  json_t *memory = NULL;
  char format[PETRA_DESCRIBE_MESSAGES];
  if (accounting)
    PETRA_TRY(memory_json(plan, *accounting, &memory));
  petra_rows *stages;
  PETRA_TRY(make_stages(plan, true, &stages));
  json_t *root = json_pack(
      "{s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:I, s:s?, s:o}", "family",
      petra_config_choice_name("model.family", (int)config->model.family), "depth", (int)plan->model.depth, "width",
      (int)plan->model.width, "method", plan->method.name, "accumulate", (json_int_t)config->method.accumulate, "batch",
      (json_int_t)config->data.batch, "parameters", (json_int_t)parameters, "forward_flops", (json_int_t)flops,
      "message_precision", petra_describe_message_precision(config, format), "stages", petra_rows_list(stages));
  if (accounting)
    petra_json_set(&root, "memory", memory);
  return petra_json_print_new(root);
}

/* Explains the words of the table. */
static void print_legend(const petra_plan *plan) {
  if (!has_sequences(plan))
    puts("FLOP: 2 per multiply-add of the convolutions and the fully connected layer; MB up, MB down: 10^6 bytes per\n"
         "microbatch sent to the stage above and below; delay: microbatches between forward and backward;\n"
         "lag: maximum number of updates between forward and backward");
  else
    printf(
        "%s;\n"
        "FLOP: 2 per multiply-add of the matrix products; MB up, MB down: 10^6 bytes per microbatch sent to the stage\n"
        "above and below; delay: microbatches between forward and backward;\n"
        "lag: maximum number of updates between forward and backward\n",
        plan->model.input.kind == PETRA_TENSOR_SEQUENCE
            ? "TxC: positions x features (output of the head: positions x vocabulary)"
            : "TxC: positions x features (output of the head: positions x classes); images are CxHxW");
}

static petra_status print_table(const petra_plan *plan, int64_t parameters, int64_t flops_sum) {
  const petra_sample_words *words = petra_sample_words_of(petra_sample_kind_of(plan->config));
  const petra_config *config = plan->config;
  char format[PETRA_DESCRIBE_MESSAGES];
  petra_rows *rows;
  petra_model_describe(config, stdout);
  printf(", %d classes; method %s, k = %lld, microbatches of ", plan->model.classes, plan->method.name,
         (long long)config->method.accumulate);
  if (config->cluster.replicas > 1)
    printf("%lld x ", (long long)config->cluster.replicas);
  printf("%lld %s\n\n", (long long)config->data.batch, words->samples);
  PETRA_TRY(make_stages(plan, false, &rows));
  PETRA_TRY(petra_rows_print(rows));
  printf("\n%d stages, %lld parameters, %.3f MFLOP forward per %s\n", plan->partition.stages, (long long)parameters,
         (double)flops_sum * 1e-6, words->sample);
  print_legend(plan);
  const char *messages = petra_describe_messages(config, format);
  if (messages)
    printf("MB up, MB down: messages %s\n", messages);
  if (plan->data.best_loss > 0)
    printf("lowest possible mean loss with model.context %d: %.4f nats per token\n", plan->data.context,
           plan->data.best_loss);
  return PETRA_OK;
}

/* Prints the resources of a run. The number of microbatches is not known, because it depends on the data set, which is
 * not read. */
static petra_status print_estimate(petra_plan *plan) {
  petra_estimate estimate;
  PETRA_TRY(petra_plan_load_profile(plan));
  PETRA_TRY(petra_estimate_of(plan, plan->config->run.max_microbatches, &estimate));
  puts("\nestimate for petra train:");
  petra_estimate_print(plan, &estimate, 0, 0, stdout);
  return PETRA_OK;
}

/* Creates the network of the plan anew for images of --image-size. */
static petra_status resize(petra_plan *plan, const char *text) {
  char *end;
  long size = strtol(text, &end, 10);
  if (*end || end == text || size < 1 || size > largest_image)
    return petra_fail(PETRA_USAGE, "--image-size: '%s' is not an image size; expected 1 to %ld pixels", text,
                      largest_image);
  if (plan->model.input.kind != PETRA_TENSOR_ACTIVATION)
    return petra_fail(PETRA_USAGE, "--image-size: %s reads tokens, not images", petra_family_title(plan->model.family));
  const petra_stream_shape input = petra_image_stream((int32_t)size, (int32_t)size);
  petra_partition_fini(&plan->partition);
  petra_model_fini(&plan->model);
  PETRA_TRY(petra_model_init(&plan->model, plan->config, &input, 0));
  PETRA_TRY(petra_partition_init(&plan->partition, plan->config, &plan->model));
  return plan->method.program->local ? petra_model_add_auxiliary(&plan->model, plan->stages, plan->partition.first)
                                     : PETRA_OK;
}

/* Checks that the memory of the plan can be counted. */
static petra_status check_memory(const petra_plan *plan) {
  if (*plan->config->method.schedule)
    return petra_config_fail(plan->config, "method.schedule",
                             "--memory counts from the delays of the method's own order; expected no method.schedule");
  if (plan->method.program->arrival)
    return petra_config_fail(
        plan->config, "method.name",
        "%s with --memory, which needs fixed delays; expected a method with a fixed order, or petra simulate",
        plan->method.name);
  return petra_plan_check_norms(plan);
}

/* Prints the table of stages and the resources of a run. */
static petra_status inspect_config(const petra_arguments *arguments) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_FINISHED(petra_plan_fini) petra_plan plan = {0};
  petra_accounting accounting;
  if (arguments->memory)
    PETRA_TRY(petra_accounting_parse("--memory", arguments->memory, &accounting));
  const petra_accounting *memory = arguments->memory ? &accounting : NULL;
  PETRA_TRY(petra_arguments_config(arguments, "inspect", &config));
  PETRA_TRY(petra_plan_init(&plan, config));
  PETRA_TRY(petra_plan_read_order(&plan));
  PETRA_TRY(petra_plan_measure_order(&plan));
  if (memory)
    PETRA_TRY(check_memory(&plan));
  if (arguments->image_size)
    PETRA_TRY(resize(&plan, arguments->image_size));
  int64_t parameters = 0, flops = 0;
  for (int b = 0; b < plan.model.block_count + plan.model.auxiliary_count; b++) {
    parameters += petra_block_parameters(&plan.model, &plan.model.blocks[b]);
    flops += petra_block_flops(&plan.model.blocks[b]);
  }
  if (arguments->json)
    return print_json(&plan, parameters, flops, memory);
  PETRA_TRY(print_table(&plan, parameters, flops));
  if (memory)
    PETRA_TRY(memory_print(&plan, *memory));
  return arguments->image_size ? PETRA_OK : print_estimate(&plan);
}

/* --- the command --- */

/* Returns true if `path` is a folder or begins with HDF5's signature. */
static bool is_run_file(const char *path) {
  struct stat info;
  char start[PETRA_SEAL_BEGIN_BYTES];
  if (stat(path, &info) != 0)
    return false;
  if (!S_ISREG(info.st_mode)) /* a pipe must not lose its first bytes */
    return S_ISDIR(info.st_mode);
  FILE *file = fopen(path, "rb");
  if (!file)
    return false;
  bool found = petra_seal_begins_hdf5(start, fread(start, 1, sizeof start, file));
  fclose(file);
  return found;
}

static petra_status run(const petra_arguments *arguments) {
  if (arguments->requests)
    return petra_requests_inspect(arguments);
  bool is_run = arguments->input && is_run_file(arguments->input);
  if (is_run && (arguments->memory || arguments->image_size))
    return petra_fail(PETRA_USAGE, "%s is a run: --memory and --image-size are for a config", arguments->input);
  if (is_run && arguments->set_count)
    return petra_fail(PETRA_USAGE, "--set goes with a config; %s is a run", arguments->input);
  return is_run ? petra_python_start(arguments->words) : inspect_config(arguments);
}

const petra_command petra_command_inspect = {
    .name = "inspect",
    .summary = "prints the stages of a config, or the summary of a run",
    .arguments = "CONFIG.yaml|RUN.h5|DIR [--set KEY=VALUE]... [--memory paper|strict] [--image-size N] [--json]",
    .help = "For a config: prints the table of stages with shapes, parameters, FLOPs, message sizes and delays, and\n"
            "estimates the time (if there is a profile), the memory and the disk space of a run. No data are read.\n"
            "\n"
            "For a run (its folder or its run.h5, also during the run): prints its settings, its epochs and its peak\n"
            "memory.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("memory", "paper|strict", memory,
                         "config only: adds the memory of the stages. This is the memory that delayed training needs, "
                         "by stage and category, computed from the shapes. It is given several times: with and without "
                         "the memory of stored inputs and of stored old weights. paper counts as table 3 of the paper "
                         "does; strict counts every stream."),
            PETRA_OPTION("image-size", "N", image_size,
                         "config only: prints the tables for images of N x N instead of those of the data set"),
            PETRA_OPTION("requests", "FILE", requests,
                         "answers the requests of another program, one JSON object a line (docs/requests.md), instead "
                         "of a config; - reads them from standard input"),
            {0}},
    .run = run};
