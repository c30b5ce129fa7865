/* SPDX-License-Identifier: Apache-2.0 */
/* petra inspect: of a config its stage table, of a run its summary. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/table.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "cli/epoch_json.h"
#include "cli/memory.h"
#include "cli/pace.h"
#include "run/best.h"
#include "run/describe.h"
#include "run/estimate.h"
#include "run/folder.h"
#include "run/simulation.h"
#include "io/runlog_read.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- a config --- */

static const long largest_image = 4096; /* pixels a side: far above any data set, and counts stay within 63 bits */

static json_t *shape_json(const petra_stream_shape *shape, int streams) {
  if (shape->kind == PETRA_TENSOR_SEQUENCE)
    return json_pack("{s:i, s:i, s:i}", "streams", streams, "positions", shape->positions, "features", shape->features);
  return json_pack("{s:i, s:i, s:i, s:i}", "streams", streams, "channels", shape->channels, "height", shape->height,
                   "width", shape->width);
}

static json_t *stage_json(const petra_plan *plan, int stage) {
  petra_stage_summary s;
  petra_plan_stage_summary(plan, stage, &s);
  return json_pack("{s:i, s:s, s:b, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "stage", stage + 1, "name", s.name,
                   "reversible", s.reversible, "input", shape_json(&s.in, s.streams_in), "output",
                   shape_json(&s.out, s.streams_out), "parameters", (json_int_t)s.parameters, "forward_flops",
                   (json_int_t)s.forward_flops, "forward_bytes", (json_int_t)s.forward_bytes, "backward_bytes",
                   (json_int_t)s.backward_bytes, "delay", (json_int_t)s.delay, "lag", (json_int_t)s.lag);
}

/* `accounting`: of the member memory; NULL: without it. */
static petra_status print_json(const petra_plan *plan, int64_t parameters, int64_t flops,
                               const petra_accounting *accounting) {
  const petra_config *config = plan->config;
  json_t *memory = NULL;
  if (accounting)
    PETRA_TRY(petra_memory_json(plan, *accounting, &memory));
  json_t *stages = json_array();
  for (int j = 0; j < plan->partition.stages; j++)
    petra_json_append(&stages, stage_json(plan, j));
  json_t *root = json_pack("{s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:I, s:o}", "family",
                           petra_config_choice_name("model.family", (int)config->model.family), "depth",
                           (int)plan->model.depth, "width", (int)plan->model.width, "method", plan->method.name,
                           "accumulate", (json_int_t)config->method.accumulate, "batch", (json_int_t)config->data.batch,
                           "parameters", (json_int_t)parameters, "forward_flops", (json_int_t)flops, "stages", stages);
  if (accounting)
    petra_json_set(&root, "memory", memory);
  return petra_json_print_new(root);
}

/* Channels, height, width; of a sequence positions, features. */
static void shape_cell(petra_table *table, const petra_stream_shape *shape, int streams) {
  const char *both = streams == 2 ? "2 x " : "";
  if (shape->kind == PETRA_TENSOR_SEQUENCE)
    petra_table_cell(table, "%s%dx%d", both, shape->positions, shape->features);
  else
    petra_table_cell(table, "%s%dx%dx%d", both, shape->channels, shape->height, shape->width);
}

static void add_row(petra_table *table, const petra_plan *plan, int stage) {
  petra_stage_summary s;
  petra_plan_stage_summary(plan, stage, &s);
  petra_table_cell(table, "%d", stage + 1);
  petra_table_cell(table, "%s", s.name);
  petra_table_cell(table, "%s", s.reversible ? "yes" : "no");
  shape_cell(table, &s.in, s.streams_in);
  shape_cell(table, &s.out, s.streams_out);
  petra_table_cell(table, "%lld", (long long)s.parameters);
  petra_table_cell(table, "%.3f", (double)s.forward_flops * 1e-6);
  petra_table_cell(table, "%.3f", (double)s.forward_bytes * 1e-6);
  petra_table_cell(table, "%.3f", (double)s.backward_bytes * 1e-6);
  petra_table_cell(table, "%lld", (long long)s.delay);
  petra_table_cell(table, "%lld", (long long)s.lag);
}

/* What the words of the table stand for. */
static void print_legend(const petra_plan *plan, bool sequences) {
  if (!sequences)
    puts("FLOP: multiply-adds of convolutions and the fully connected layer times two; MB: 10^6 bytes per microbatch, "
         "sent to the\n"
         "stage above and below; delay: microbatches between forward and backward; lag: most updates between the two");
  else
    printf("%s; FLOP: multiply-adds of\n"
           "matrix products times two; MB: 10^6 bytes per microbatch, sent to the stage above and below; delay: "
           "microbatches between\n"
           "forward and backward; lag: most updates between the two\n",
           plan->model.input.kind == PETRA_TENSOR_SEQUENCE
               ? "TxC: positions x features (of the head's output: x vocabulary)"
               : "TxC: positions x features (of the head's output: x classes), an image CxHxW");
}

static petra_status print_table(const petra_plan *plan, int64_t parameters, int64_t flops_sum) {
  const petra_sample_words *words = petra_sample_words_of(petra_samples_of(plan->config));
  const bool sequences = plan->model.blocks[0].shape_out.kind == PETRA_TENSOR_SEQUENCE;
  const char *in = sequences ? "input TxC" : "input CxHxW", *out = sequences ? "output TxC" : "output CxHxW";
  char flops[32];
  snprintf(flops, sizeof flops, "MFLOP/%s", words->sample);
  const petra_table_column columns[] = {
      {"stage", PETRA_TABLE_RIGHT}, {"blocks", PETRA_TABLE_LEFT}, {"reversible", PETRA_TABLE_LEFT},
      {in, PETRA_TABLE_RIGHT},      {out, PETRA_TABLE_RIGHT},     {"parameters", PETRA_TABLE_RIGHT},
      {flops, PETRA_TABLE_RIGHT},   {"MB up", PETRA_TABLE_RIGHT}, {"MB down", PETRA_TABLE_RIGHT},
      {"delay", PETRA_TABLE_RIGHT}, {"lag", PETRA_TABLE_RIGHT}};
  const petra_config *config = plan->config;
  petra_table *table;
  petra_model_describe(config, stdout);
  printf(", %d classes; method %s, k = %lld, microbatches of ", plan->model.classes, plan->method.name,
         (long long)config->method.accumulate);
  if (config->cluster.replicas > 1)
    printf("%lld x ", (long long)config->cluster.replicas);
  printf("%lld %s\n\n", (long long)config->data.batch, words->samples);
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int j = 0; j < plan->partition.stages; j++)
    add_row(table, plan, j);
  PETRA_TRY(petra_table_print(table, stdout));
  printf("\n%d stages, %lld parameters, %.3f MFLOP forward per %s\n", plan->partition.stages, (long long)parameters,
         (double)flops_sum * 1e-6, words->sample);
  print_legend(plan, sequences);
  if (plan->data.best_loss > 0)
    printf("least mean loss of any network with model.context %d: %.4f nats a token\n", plan->data.context,
           plan->data.best_loss);
  return PETRA_OK;
}

/* What a run takes; how many microbatches it has only the data set knows, which is not read. */
static petra_status print_estimate(petra_plan *plan) {
  petra_estimate estimate;
  PETRA_TRY(petra_plan_load_profile(plan));
  PETRA_TRY(petra_estimate_of(plan, &estimate));
  puts("\na run (petra train):");
  petra_estimate_print(plan, &estimate, 0, stdout);
  return PETRA_OK;
}

/* The network of the plan anew, for images of --image-size. */
static petra_status resize(petra_plan *plan, const char *text) {
  char *end;
  long size = strtol(text, &end, 10);
  if (*end || end == text || size < 1 || size > largest_image)
    return petra_fail(PETRA_USAGE, "--image-size: '%s' is no size of an image; expected pixels from 1 to %ld", text,
                      largest_image);
  if (plan->model.input.kind != PETRA_TENSOR_ACTIVATION)
    return petra_fail(PETRA_USAGE, "--image-size: %s reads tokens, and no images",
                      petra_family_title(plan->model.family));
  const petra_stream_shape input = petra_image_stream((int32_t)size, (int32_t)size);
  petra_partition_fini(&plan->partition);
  petra_model_fini(&plan->model);
  PETRA_TRY(petra_model_init(&plan->model, plan->config, &input, 0));
  return petra_partition_init(&plan->partition, plan->config, &plan->model);
}

/* Whether its memory can be counted. */
static petra_status check_memory(const petra_plan *plan) {
  if (*plan->config->method.schedule)
    return petra_config_fail(plan->config, "method.schedule",
                             "with --memory, which counts from the delays of the method's own order; expected none");
  if (plan->method.program->arrival)
    return petra_config_fail(plan->config, "method.name",
                             "%s with --memory, which counts from delays; no order fixes them by arrival: expected a "
                             "method with an order, or petra simulate",
                             plan->method.name);
  return PETRA_OK;
}

static petra_status inspect_config(const petra_arguments *arguments) {
  petra_config *config;
  petra_plan plan = {0};
  petra_accounting accounting;
  petra_status status;
  if (arguments->memory)
    PETRA_TRY(petra_accounting_parse("--memory", arguments->memory, &accounting));
  const petra_accounting *memory = arguments->memory ? &accounting : NULL;
  PETRA_TRY(petra_arguments_config(arguments, "inspect", &config));
  PETRA_TRY_GOTO(status, petra_plan_init(&plan, config), done);
  PETRA_TRY_GOTO(status, petra_plan_read_order(&plan), done);
  PETRA_TRY_GOTO(status, petra_plan_measure_order(&plan), done);
  if (memory)
    PETRA_TRY_GOTO(status, check_memory(&plan), done);
  if (arguments->image_size)
    PETRA_TRY_GOTO(status, resize(&plan, arguments->image_size), done);
  int64_t parameters = 0, flops = 0;
  for (int b = 0; b < plan.model.block_count; b++) {
    parameters += petra_block_parameters(&plan.model, &plan.model.blocks[b]);
    flops += petra_block_flops(&plan.model.blocks[b]);
  }
  status = arguments->json ? print_json(&plan, parameters, flops, memory) : print_table(&plan, parameters, flops);
  if (status == PETRA_OK && memory && !arguments->json)
    status = petra_memory_print(&plan, *memory);
  if (status == PETRA_OK && !arguments->json && !arguments->image_size)
    status = print_estimate(&plan);
done:
  petra_plan_fini(&plan);
  petra_config_destroy(config);
  return status;
}

/* --- a run --- */

/* Whether `path` is a folder or begins with HDF5's signature. */
static bool is_run_file(const char *path) {
  struct stat info;
  char start[PETRA_SEAL_BEGIN_BYTES];
  if (petra_is_folder(path))
    return true;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
    return false; /* a pipe must not lose its first bytes */
  FILE *file = fopen(path, "rb");
  if (!file)
    return false;
  bool found = petra_seal_begins_hdf5(start, fread(start, 1, sizeof start, file));
  fclose(file);
  return found;
}

static json_t *stage_row_json(const petra_runlog_summary *summary, int j) {
  const petra_runlog_stage *row = &summary->stage[j];
  json_t *object =
      json_pack("{s:i, s:o, s:b, s:I, s:I, s:i}", "stage", (int)row->stage, "name", petra_json_string(row->name),
                "reversible", row->reversible, "parameters", (json_int_t)row->parameters, "forward_flops",
                (json_int_t)row->forward_flops, "delay", (int)row->delay);
  if (j < summary->memory_stages)
    petra_json_set(&object, "peak_bytes",
                   petra_peaks_json(&summary->peak_bytes[j * PETRA_MEMORY_CATEGORIES], summary->total_peak_bytes[j]));
  return object;
}

static petra_status print_run_json(const petra_runlog_summary *summary, const char *path) {
  json_t *epochs = json_array(), *stages = json_array();
  for (int64_t e = 0; e < summary->epochs; e++)
    petra_json_append(&epochs, petra_epoch_json(&summary->epoch[e], summary->samples, summary->recalibrated));
  for (int j = 0; j < summary->stages; j++)
    petra_json_append(&stages, stage_row_json(summary, j));
  return petra_json_print_new(
      json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "run", petra_json_string(path), "created",
                petra_json_string(summary->created), "petra_version", petra_json_string(summary->petra_version),
                "command", petra_json_string(summary->command), "backend", petra_json_string(summary->backend), "seed",
                (json_int_t)summary->seed, "microbatches", (json_int_t)summary->microbatches, "epochs", epochs,
                "stages", stages, "pace", petra_pace_json(summary)));
}

/* "-" for what is not known: a loss that did not come back in the epoch, an evaluation that was not made. */
static void real_cell(petra_table *table, int decimals, double value) {
  if (isnan(value))
    petra_table_cell(table, "-");
  else
    petra_table_cell(table, "%.*f", decimals, value);
}

static petra_status print_epochs(const petra_runlog_summary *summary) {
  enum { PLAIN = 9, TOKENS = 2, RECALIBRATED = 3 };
  static const petra_table_column of_tokens[TOKENS] = {{"eval perplexity", PETRA_TABLE_RIGHT},
                                                       {"eval bits/token", PETRA_TABLE_RIGHT}};
  static const petra_table_column recalibrated[RECALIBRATED] = {
      {"recal. loss", PETRA_TABLE_RIGHT}, {"recal. top-1 %", PETRA_TABLE_RIGHT}, {"recal. top-5 %", PETRA_TABLE_RIGHT}};
  const bool tokens = summary->samples == PETRA_SAMPLE_TOKENS;
  petra_table_column columns[PLAIN + RECALIBRATED] = {{"epoch", PETRA_TABLE_RIGHT},
                                                      {"train loss", PETRA_TABLE_RIGHT},
                                                      {"train top-1 %", PETRA_TABLE_RIGHT},
                                                      {"eval loss", PETRA_TABLE_RIGHT},
                                                      {"eval top-1 %", PETRA_TABLE_RIGHT},
                                                      {"eval top-5 %", PETRA_TABLE_RIGHT},
                                                      {"lr", PETRA_TABLE_RIGHT},
                                                      {tokens ? "tokens/s" : "images/s", PETRA_TABLE_RIGHT},
                                                      {"wall s", PETRA_TABLE_RIGHT}};
  const int more = tokens ? TOKENS : summary->recalibrated ? RECALIBRATED : 0;
  petra_table *table;
  memcpy(columns + PLAIN, tokens ? of_tokens : recalibrated, (size_t)more * sizeof *columns);
  PETRA_TRY(petra_table_create(columns, PLAIN + more, &table));
  for (int64_t e = 0; e < summary->epochs; e++) {
    const petra_runlog_epoch *row = &summary->epoch[e];
    petra_table_cell(table, "%d", row->epoch + 1);
    real_cell(table, 4, row->train_loss);
    real_cell(table, 2, 100 * row->train_top1);
    real_cell(table, 4, row->eval_loss);
    real_cell(table, 2, 100 * row->eval_top1);
    real_cell(table, 2, 100 * row->eval_top5);
    if (isnan(row->lr))
      petra_table_cell(table, "-");
    else
      petra_table_cell(table, "%.4g", row->lr);
    real_cell(table, 0, row->rate);
    petra_table_cell(table, "%.1f", row->wall_s);
    if (tokens) {
      real_cell(table, 3, exp(row->eval_loss));
      real_cell(table, 4, row->eval_loss / M_LN2);
    }
    if (!summary->recalibrated)
      continue;
    real_cell(table, 4, row->eval_loss_recalibrated);
    real_cell(table, 2, 100 * row->eval_top1_recalibrated);
    real_cell(table, 2, 100 * row->eval_top5_recalibrated);
  }
  return petra_table_print(table, stdout);
}

static petra_status print_memory(const petra_runlog_summary *summary) {
  petra_table_column columns[PETRA_MEMORY_CATEGORIES + 3] = {{"stage", PETRA_TABLE_RIGHT},
                                                             {"blocks", PETRA_TABLE_LEFT}};
  petra_table *table;
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    columns[2 + c] = (petra_table_column){petra_memory_category_name((petra_memory_category)c), PETRA_TABLE_RIGHT};
  columns[PETRA_MEMORY_CATEGORIES + 2] = (petra_table_column){"peak", PETRA_TABLE_RIGHT};
  PETRA_TRY(petra_table_create(columns, PETRA_MEMORY_CATEGORIES + 3, &table));
  for (int j = 0; j < summary->memory_stages && j < summary->stages; j++) {
    petra_table_cell(table, "%d", j + 1);
    petra_table_cell(table, "%s", summary->stage[j].name);
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      petra_table_cell(table, "%.3f", 1e-6 * (double)summary->peak_bytes[j * PETRA_MEMORY_CATEGORIES + c]);
    petra_table_cell(table, "%.3f", 1e-6 * (double)summary->total_peak_bytes[j]);
  }
  printf("\npeak memory in MB (10^6 bytes): each category at its own peak, and all together at theirs\n");
  return petra_table_print(table, stdout);
}

/* Of an executed run: what each rank did with its time. */
static petra_status print_ranks(const petra_runlog_summary *summary) {
  static const petra_table_column columns[] = {
      {"rank", PETRA_TABLE_RIGHT},        {"replica", PETRA_TABLE_RIGHT},   {"stages", PETRA_TABLE_RIGHT},
      {"computing s", PETRA_TABLE_RIGHT}, {"copying s", PETRA_TABLE_RIGHT}, {"waiting s", PETRA_TABLE_RIGHT},
      {"wall s", PETRA_TABLE_RIGHT},      {"messages", PETRA_TABLE_RIGHT},  {"MB sent", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int32_t r = 0; r < summary->ranks; r++) {
    int32_t stages = 0;
    for (int32_t j = 0; j < summary->placed; j++)
      stages += summary->of_stage[j] == r % summary->places;
    petra_table_cell(table, "%d", r);
    petra_table_cell(table, "%d", r / summary->places);
    petra_table_cell(table, "%d", stages);
    for (int t = 0; t < PETRA_RUNLOG_RANK_TIMES; t++)
      petra_table_cell(table, "%.3f", 1e-9 * (double)summary->time_ns[r * PETRA_RUNLOG_RANK_TIMES + t]);
    petra_table_cell(table, "%lld", (long long)summary->sent[r * PETRA_RUNLOG_RANK_SENT]);
    petra_table_cell(table, "%.3f", 1e-6 * (double)summary->sent[r * PETRA_RUNLOG_RANK_SENT + 1]);
  }
  printf("\nranks: seconds of the wall clock in actions; turning tensors into messages and back; waiting for others\n");
  return petra_table_print(table, stdout);
}

static void print_length(const petra_runlog_summary *summary) {
  if (!summary->simulated) {
    printf("length   %lld epoch%s, losses of %lld microbatch%s\n", (long long)summary->epochs,
           summary->epochs == 1 ? "" : "s", (long long)summary->microbatches, summary->microbatches == 1 ? "" : "es");
    return;
  }
  printf("length   simulated: %lld microbatches in %.9g s", (long long)*summary->simulated, *summary->makespan_s);
  if (isfinite(*summary->time_per_microbatch_s))
    printf(", %.9g s per microbatch", *summary->time_per_microbatch_s);
  putchar('\n');
}

/* By what it learns, and from what. */
static petra_status print_learning(const petra_config *config) {
  fputs("\noptim    ", stdout);
  PETRA_TRY(petra_describe_optimiser(config, stdout));
  fputs("\ndata     ", stdout);
  petra_describe_data(config, stdout);
  return PETRA_OK;
}

/* What the run was asked for. */
static petra_status print_config_of(const petra_runlog_summary *summary, const char *path) {
  const petra_config_text text = {path, summary->config, strlen(summary->config)};
  petra_config *config;
  PETRA_TRY(petra_config_load_text(&text, NULL, 0, &config));
  const int32_t stages = summary->stages ? summary->stages : (int32_t)config->cluster.stages;
  fputs("network  ", stdout);
  petra_describe_network(config, stdout);
  if (stages > 0)
    printf(", %d stage%s", stages, stages == 1 ? "" : "s");
  fputs("\nmethod   ", stdout);
  petra_status status = petra_describe_method(config, stdout);
  if (status == PETRA_OK && config->cluster.stages == 0 && strcmp(summary->backend, PETRA_SIMULATION_BACKEND) != 0)
    status = print_learning(config);
  fputs("\nprobes   ", stdout);
  if (config->probe.per_epoch > 0)
    printf("%lld an epoch\n", (long long)config->probe.per_epoch);
  else
    puts("none");
  petra_config_destroy(config);
  return status;
}

/* Which weights the run keeps, where they are not its last. */
static petra_status print_kept(const petra_runlog_summary *summary, const char *path) {
  const petra_config_text text = {path, summary->config, strlen(summary->config)};
  const int64_t row = petra_best_of(summary->epoch, summary->epochs, summary->samples);
  petra_config *config;
  PETRA_TRY(petra_config_load_text(&text, NULL, 0, &config));
  if (config->run.keep == PETRA_KEEP_BEST && row < 0)
    puts("weights  of the best evaluation; there was none yet");
  else if (config->run.keep == PETRA_KEEP_BEST) {
    const petra_runlog_epoch *best = &summary->epoch[row];
    const char *file = summary->complete ? "weights.h5" : PETRA_BEST_FILE;
    if (petra_best_by_loss(summary->samples))
      printf("weights  of the best evaluation: epoch %d, loss %.4f (%s)\n", best->epoch + 1, best->eval_loss, file);
    else
      printf("weights  of the best evaluation: epoch %d, top-1 %.2f %% (%s)\n", best->epoch + 1, 100 * best->eval_top1,
             file);
  }
  petra_config_destroy(config);
  return PETRA_OK;
}

static petra_status print_run(const petra_runlog_summary *summary, const char *path) {
  petra_utf8_print(stdout, "%s\n", path);
  petra_utf8_print(stdout, "created  %s by petra %s\n", summary->created, summary->petra_version);
  petra_utf8_print(stdout, "command  %s\n", summary->command);
  petra_utf8_print(stdout, "backend  %s\n", summary->backend);
  PETRA_TRY(print_config_of(summary, path));
  printf("state    %s\n", summary->complete ? "complete" : "not complete: going on, or cut off");
  print_length(summary);
  PETRA_TRY(print_kept(summary, path));
  if (summary->epochs) {
    putchar('\n');
    PETRA_TRY(print_epochs(summary));
  }
  if (summary->memory_stages)
    PETRA_TRY(print_memory(summary));
  if (summary->ranks)
    PETRA_TRY(print_ranks(summary));
  return summary->pace_microbatch_s ? petra_pace_print(summary) : PETRA_OK;
}

static petra_status inspect_run(const petra_arguments *arguments) {
  char *path = NULL;
  petra_runlog_summary *summary = NULL;
  petra_status status;
  if (arguments->set_count)
    return petra_fail(PETRA_USAGE, "--set goes with a config; %s is a run", arguments->input);
  PETRA_TRY(petra_run_log_path(arguments->input, &path));
  PETRA_TRY_GOTO(status, petra_runlog_summary_read(path, &summary), done);
  status = arguments->json ? print_run_json(summary, path) : print_run(summary, path);
done:
  petra_runlog_summary_destroy(summary);
  petra_free(path);
  return status;
}

static petra_status run(const petra_arguments *arguments) {
  bool is_run = arguments->input && is_run_file(arguments->input);
  if (is_run && (arguments->memory || arguments->image_size))
    return petra_fail(PETRA_USAGE, "%s is a run: --memory and --image-size are for a config", arguments->input);
  return is_run ? inspect_run(arguments) : inspect_config(arguments);
}

const petra_command petra_command_inspect = {
    .name = "inspect",
    .summary = "prints the stages of a config, or the summary of a run",
    .arguments = "CONFIG.yaml|RUN.h5|DIR [--set KEY=VALUE]... [--memory paper|strict] [--image-size N] [--json]",
    .help = "Of a config: the table of stages with shapes, parameters, FLOPs, message sizes and delays, and what a run "
            "takes\n"
            "(time with a profile, memory, disk); no data is read.\n"
            "Of a run (its folder or its run.h5, also while it goes on): what it is, its epochs, its peak memory.\n",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION_MORE(
                "memory", "paper|strict", memory, "of a config: adds the memory of the stages",
                "It is what delayed training needs by stage and category, counted from the shapes, with "
                "inputs and weights kept or not. paper counts as table 3 of the paper does, strict counts "
                "every stream."),
            PETRA_OPTION("image-size", "N", image_size,
                         "of a config: the tables for images of N x N in place of the data set's"),
            {0}},
    .run = run};
