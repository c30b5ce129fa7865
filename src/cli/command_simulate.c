/* SPDX-License-Identifier: Apache-2.0 */
/* petra simulate: the cost of a method on the modelled cluster; no tensor is touched. */
#include "base/json.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/rows.h"
#include "setup/describe.h"
#include "run/simulation.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* With more stages than this the table shows only the first and the last few. */
enum { MAX_ROWS = 40, END_ROWS = 10 };

static json_t *critical_json(const petra_simulated *result) {
  json_t *parts = json_object();
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++)
    petra_json_set(&parts, petra_critical_name((petra_critical_kind)k), json_integer(result->path.ns[k]));
  return json_pack("{s:o, s:I, s:I}", "ns", parts, "actions", (json_int_t)result->path.actions, "messages",
                   (json_int_t)result->path.messages);
}

/* Returns the memory peaks of a stage: one per category, and the total. */
static json_t *peaks_json(const int64_t bytes[PETRA_MEMORY_CATEGORIES], int64_t total) {
  json_t *object = json_object();
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    petra_json_set(&object, petra_memory_category_name((petra_memory_category)c), json_integer(bytes[c]));
  petra_json_set(&object, "total", json_integer(total));
  return object;
}

/* Adds stage j, from 0. The table has a column of devices only if a device has several stages. */
static void add_stage(petra_rows *rows, const petra_simulated *result, int32_t j) {
  const petra_run_h5_simulation *f = &result->figures;
  const petra_program_options *program = &result->plan->program;
  const petra_account *account = result->accounts ? &result->accounts[j] : NULL;
  const bool shared = petra_program_devices(program) < program->stages;
  const int32_t device = petra_program_device(program, j + 1);
  petra_rows_next(rows);
  petra_row_integer(rows, shared ? "device" : NULL, NULL, device);
  petra_row_integer(rows, "stage", "stage", j + 1);
  petra_row_integer(rows, NULL, "device", device);
  petra_row_real(rows, "busy", "utilization", f->utilization[j], 1, 4);
  petra_row_real(rows, "lag mean", "lag_mean", f->lag_mean[j], 1, 4);
  petra_row_integer(rows, "lag max", "lag_max", f->lag_max[j]);
  petra_row_integer(rows, "in flight", "in_flight_max", f->in_flight_max[j]);
  petra_row_integer(rows, "kept", "kept_max", f->kept_max[j]);
  petra_row_megabytes(rows, "up MB", "bytes_up", f->bytes_up[j]);
  petra_row_megabytes(rows, "down MB", "bytes_down", f->bytes_down[j]);
  if (f->bytes_exchanged)
    petra_row_integer(rows, NULL, "bytes_exchanged", f->bytes_exchanged[j]);
  if (f->critical_kinds)
    petra_row_integer(rows, NULL, "critical_ns", f->critical_stage_ns[j]);
  petra_row_megabytes(rows, account ? "peak MB" : NULL, NULL, account ? account->total_peak_bytes : 0);
  petra_row_member(rows, "peak_bytes",
                   account ? peaks_json(account->peak_bytes, account->total_peak_bytes) : json_object());
}

/* Returns the source of the times of messages between ranks; NULL if there are no ranks. */
static const char *link_of(const petra_simulated *result) {
  if (result->figures.ranks == 0)
    return NULL;
  return result->measured_link ? "profile" : "config";
}

static json_t *devices_json(const petra_simulated *result) {
  const double available_ns = (double)result->figures.makespan_ns * (double)result->plan->config->cluster.engines;
  json_t *devices = json_array();
  for (int32_t d = 0; d < result->device_count; d++) {
    const petra_device_counts *counts = &result->devices[d];
    petra_json_append(
        &devices,
        json_pack("{s:i, s:o, s:I, s:I, s:o}", "device", (int)d + 1, "utilization",
                  petra_json_real(available_ns > 0 ? (double)counts->busy_ns / available_ns : 0), "in_flight_max",
                  (json_int_t)counts->in_flight_max, "kept_max", (json_int_t)counts->kept_max, "peak_bytes",
                  result->device_accounts ? json_integer(result->device_accounts[d].total_peak_bytes) : json_null()));
  }
  return devices;
}

/* For cluster.placement: prints the stages of each process and how busy it is. */
static json_t *ranks_json(const petra_run_h5_simulation *f) {
  json_t *ranks = json_array();
  for (int32_t r = 0; r < f->ranks; r++) {
    int count = 0;
    for (int32_t j = 0; j < f->stages; j++)
      count += f->of_stage[j] == r;
    petra_json_append(&ranks, json_pack("{s:i, s:i, s:o}", "rank", (int)r, "stages", count, "busy",
                                        petra_json_real(f->rank_busy[r])));
  }
  return ranks;
}

static const petra_sample_words *words_of(const petra_simulated *result) {
  return petra_sample_words_of(petra_sample_kind_of(result->plan->config));
}

/* Returns images or tokens per second; NaN if there is no such figure: without a model there are no images or tokens,
 * and at unit costs there are no seconds. */
static double labels_per_s(const petra_simulated *result) {
  const petra_config *config = result->plan->config;
  const bool none = config->cluster.stages > 0 || config->cluster.cost.model == PETRA_COST_UNIT;
  const int64_t labels = petra_plan_microbatch_samples(config) * petra_sample_labels(config);
  return none ? NAN : (double)labels / result->figures.time_per_microbatch_s;
}

json_t *petra_simulate_json(const petra_run *simulation) {
  const petra_simulated *result = petra_run_simulated(simulation);
  const petra_plan *plan = result->plan;
  char format[PETRA_DESCRIBE_MESSAGES];
  const petra_run_h5_simulation *f = &result->figures;
  petra_rows *stages;
  if (petra_rows_create(true, &stages) != PETRA_OK)
    return NULL;
  for (int32_t j = 0; j < plan->program.stages; j++)
    add_stage(stages, result, j);
  return json_pack(
      "{s:i, s:s, s:s, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:s?, s:o, s:o, s:I, s:I, s:b, s:o, s:o, s:s?, "
      "s:o, s:o, s:o, s:s?, s:o}",
      "schema", PETRA_SCHEMA_SIMULATE, "method", plan->method.name, "program", plan->method.program->name, "replicas",
      (json_int_t)plan->config->cluster.replicas, "engines", (json_int_t)plan->config->cluster.engines, "microbatches",
      (json_int_t)plan->program.microbatches, "makespan_s", petra_json_real(1e-9 * (double)f->makespan_ns),
      "makespan_ns", (json_int_t)f->makespan_ns, "time_per_microbatch_s", petra_json_real(f->time_per_microbatch_s),
      "time_per_microbatch_low_s", petra_json_real(f->low_s), "time_per_microbatch_high_s", petra_json_real(f->high_s),
      "ranks", ranks_json(f), "link", link_of(result), "bubble_fraction", petra_json_real(f->bubble_fraction),
      "host_busy", petra_json_real(result->host_busy), "actions", (json_int_t)f->actions, "microbatches_skipped",
      (json_int_t)result->skipped, "runaway", result->runaway >= 0, "runaway_microbatch",
      result->runaway < 0 ? json_null() : json_integer(result->runaway), "critical_path",
      f->critical_kinds ? critical_json(result) : json_null(), "accounting",
      result->accounts ? result->accounting : NULL, "wall_s", petra_json_real(f->wall_s), "stages",
      petra_rows_list(stages), words_of(result)->rate, petra_json_real(labels_per_s(result)), "message_precision",
      petra_describe_message_precision(plan->config, format), "devices", devices_json(result));
}

static petra_status print_stages(const petra_simulated *result) {
  const int32_t stages = result->plan->program.stages;
  petra_rows *rows;
  PETRA_TRY(petra_rows_create(false, &rows));
  for (int32_t j = 0; j < stages; j++) {
    if (stages > MAX_ROWS && j == END_ROWS) {
      petra_rows_omit(rows);
      j = stages - END_ROWS;
    }
    add_stage(rows, result, j);
  }
  return petra_rows_print(rows);
}

/* Prints the parts of the critical path that are not 0. */
static void print_critical(const petra_simulated *result) {
  const char *between = "";
  printf("critical path: ");
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++)
    if (result->path.ns[k] > 0) {
      printf("%s%s %.9g s (%.1f %%)", between, petra_critical_name((petra_critical_kind)k),
             1e-9 * (double)result->path.ns[k], 100 * (double)result->path.ns[k] / (double)result->figures.makespan_ns);
      between = ", ";
    }
  printf("%s; %lld actions, %lld messages that take time\n", *between ? "" : "no time", (long long)result->path.actions,
         (long long)result->path.messages);
}

static void print_ranks(const petra_simulated *result) {
  const petra_run_h5_simulation *f = &result->figures;
  if (f->ranks == 0)
    return;
  printf("%d process%s, messages between them timed by %s; busy:", f->ranks, f->ranks == 1 ? "" : "es",
         result->measured_link ? "the profile's link" : "cluster.link");
  for (int32_t r = 0; r < f->ranks; r++)
    printf(" %.4f", f->rank_busy[r]);
  putchar('\n');
}

/* Prints the figures of replicas, which are all equal. */
static void print_replicas(const petra_simulated *result) {
  const petra_run_h5_simulation *f = &result->figures;
  const petra_config *config = result->plan->config;
  int64_t bytes = 0;
  if (!f->bytes_exchanged)
    return;
  for (int32_t j = 0; j < f->stages; j++)
    bytes += f->bytes_exchanged[j];
  printf("all figures: one of %lld replicas; it sends the others %.3f MB of gradients",
         (long long)config->cluster.replicas, 1e-6 * (double)bytes);
  if (config->cluster.stages == 0)
    printf("; a microbatch has %lld %s, %lld per replica", (long long)petra_plan_microbatch_samples(config),
           words_of(result)->samples, (long long)config->data.batch);
  putchar('\n');
}

static petra_status print_table(const petra_simulated *result) {
  const petra_program_options *program = &result->plan->program;
  const petra_config *config = result->plan->config;
  const petra_run_h5_simulation *f = &result->figures;
  fputs("network  ", stdout);
  petra_describe_network(config, stdout);
  printf(", %d stage%s, %lld microbatch%s of ", program->stages, program->stages == 1 ? "" : "s",
         (long long)program->microbatches, program->microbatches == 1 ? "" : "es");
  if (config->cluster.replicas > 1)
    printf("%lld x ", (long long)config->cluster.replicas);
  printf("%lld %s\nmethod   ", (long long)config->data.batch, words_of(result)->samples);
  PETRA_TRY(petra_describe_method(config, stdout));
  printf("; program %s, %lld engine%s per device\ncosts    ", result->plan->method.program->name,
         (long long)config->cluster.engines, config->cluster.engines == 1 ? "" : "s");
  PETRA_TRY(petra_describe_costs(config, stdout));
  fputs("\nlinks    ", stdout);
  petra_describe_links(config, result->measured_link, stdout);
  fputs("\n\n", stdout);
  PETRA_TRY(print_stages(result));
  printf("\nmakespan %.9g s", 1e-9 * (double)f->makespan_ns);
  if (isfinite(f->time_per_microbatch_s))
    printf(", %.9g s per microbatch", f->time_per_microbatch_s);
  else
    printf(", too few microbatches for a steady state");
  if (isfinite(f->low_s))
    printf(" (%.6g .. %.6g with all costs at their quartiles%s)", f->low_s, f->high_s,
           f->ranks > 1 ? "; the upper one is at least a ninth above the prediction, for work that no profile covers"
                        : "");
  if (isfinite(labels_per_s(result)))
    printf(", %.6g %s/s", labels_per_s(result), words_of(result)->labels);
  printf(", bubble %.4f; %lld actions in %.3g s\n", f->bubble_fraction, (long long)f->actions, f->wall_s);
  print_ranks(result);
  if (isfinite(result->host_busy))
    printf("the busiest host spends %.4f of the makespan on issuing actions\n", result->host_busy);
  print_replicas(result);
  if (f->critical_kinds)
    print_critical(result);
  printf("in flight: maximum number of microbatches between F and B; kept: maximum number of microbatches whose graph "
         "or input is stored\n");
  if (result->accounts)
    printf("peak MB: maximum memory of the stage in 10^6 bytes, accounting %s\n", result->accounting);
  return PETRA_OK;
}

petra_status petra_simulate(const petra_config *config, const petra_run_options *options, petra_run **out) {
  PETRA_TRY(petra_run_open(config, options, out));
  PETRA_TRY(petra_run_go(*out));
  PETRA_TRY(petra_run_close(*out));
  const petra_simulated *result = petra_run_simulated(*out);
  if (result->runaway >= 0)
    petra_log(PETRA_LOG_WARNING,
              "forward runs ahead of backward: from microbatch %lld on more than %lld are in flight; set method.credit "
              "to bound them",
              (long long)result->runaway, 2 * (2 * (long long)result->plan->stages - 1));
  return PETRA_OK;
}

static petra_status report(const petra_arguments *arguments, const petra_run *simulation) {
  if (arguments->json)
    return petra_json_print_new(petra_simulate_json(simulation));
  if (arguments->quiet && petra_run_directory(simulation))
    return PETRA_OK;
  PETRA_TRY(print_table(petra_run_simulated(simulation)));
  if (petra_run_directory(simulation))
    petra_utf8_print(stdout, "written: %s/{config.yaml,run.h5}\n", petra_run_directory(simulation));
  if (arguments->chakra && !arguments->quiet)
    petra_utf8_print(stdout, "written: %s/petra.N.et for each device N\n", arguments->chakra);
  return PETRA_OK;
}

/* Runs with --fit, which is written in Python, in place of this process. */
static petra_status fit(const petra_arguments *arguments) {
  if (!arguments->fit || !arguments->vary)
    return petra_fail(PETRA_USAGE, "%s without %s; expected both", arguments->fit ? "--fit" : "--vary",
                      arguments->fit ? "--vary" : "--fit");
  if (arguments->output || arguments->trace || arguments->chakra || arguments->memory || arguments->critical_path)
    return petra_fail(
        PETRA_USAGE,
        "--fit was given with an option of a single simulation; expected only --json or --quiet beside it");
  if (!arguments->input)
    return petra_fail(PETRA_USAGE,
                      "petra simulate needs a config file ('-' for standard input); see petra simulate --help");
  return petra_python_start(arguments->words);
}

/* The arguments of the writer of --chakra, which is written in Python: its name, --output DIR, and --overwrite or
 * NULL. */
static char *chakra_words[5] = {(char[]){"chakra"}, (char[]){"--output"}};

static petra_status start_chakra(FILE **out) {
  return petra_python_open(chakra_words, out);
}

static petra_status run(const petra_arguments *arguments) {
  const petra_run_options options = {.kind = PETRA_RUN_SIMULATE,
                                     .files = arguments->output != NULL,
                                     .output = arguments->output,
                                     .trace = arguments->trace,
                                     .read_actions = arguments->chakra ? start_chakra : NULL,
                                     .end_actions = petra_python_end,
                                     .command_line = arguments->command_line,
                                     .overwrite = arguments->overwrite,
                                     .memory = arguments->memory,
                                     .critical_path = arguments->critical_path};
  static char overwrite[] = "--overwrite";
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  petra_run *simulation = NULL;
  if (arguments->requests)
    return petra_requests_simulate(arguments);
  if (arguments->fit || arguments->vary)
    return fit(arguments);
  chakra_words[2] = (char *)(uintptr_t)arguments->chakra;
  chakra_words[3] = arguments->overwrite ? overwrite : NULL;
  PETRA_TRY(petra_arguments_config(arguments, "simulate", &config));
  if (arguments->overwrite && arguments->output) {
    petra_stop_catch();
    petra_stop_say("stopped; a simulation cannot be resumed");
  }
  petra_status status = petra_simulate(config, &options, &simulation);
  if (status == PETRA_OK)
    status = report(arguments, simulation);
  petra_run_destroy(simulation);
  const petra_status ended = petra_python_end();
  if (status == PETRA_CHILD && ended != PETRA_OK)
    status = ended;
  if (status == PETRA_STOPPED)
    petra_stop_report();
  return status;
}

const petra_command petra_command_simulate = {
    .name = "simulate",
    .summary = "simulates the time and memory of a method on a modelled cluster",
    .arguments = "CONFIG.yaml [--set KEY=VALUE]... [--output DIR] [--overwrite] [--trace FILE] [--chakra DIR] "
                 "[--critical-path] [--memory measured|paper|strict] [--fit FILE --vary KEYS] [--json] [--quiet]",
    .help = "Executes the actions of the method on the modelled cluster (cluster.*) under a virtual clock. Prints the\n"
            "time per microbatch, idle time, lags, messages and memory. petra computes no tensors, and writes no file\n"
            "unless --output, --trace or --chakra is given. It reads no samples: data.vocabulary replaces a missing\n"
            "file of tokens.\n"
            "\n"
            "The stages are those of the model, or cluster.stages equal stages if that key is set. The simulation\n"
            "covers run.max_microbatches microbatches. If that key is 0, it covers 16 per stage plus 8 for each tick\n"
            "of method.extra_delay, rounded up to whole updates, and at least two updates. With run.drain: auto the\n"
            "pipeline ends as in `petra train`.\n"
            "\n"
            "--fit FILE --vary KEYS fits numbers of the config to measured times per microbatch. FILE contains\n"
            "comma-separated values. Its first line contains config keys and, as the last column, seconds. Every\n"
            "other line is a measurement of the config with these settings. The fit multiplies the numbers of KEYS by\n"
            "factors. In KEYS, separate keys by commas; join keys that share a factor by +. petra prints the fitted\n"
            "values, the errors of the times, and the numbers of measurements and factors.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "DIR", output,
                         "writes run.h5 and config.yaml into DIR (default: writes nothing). With run.trace_actions: "
                         "true the log contains every action (analysis/plot_timeline.py draws them)."),
            PETRA_OPTION("overwrite", NULL, overwrite,
                         "replaces the run in DIR; without this option, a run in DIR is an error and is left as it is. "
                         "The earlier run is moved aside, and removed at the end of the simulation. If the simulation "
                         "fails, the earlier run is restored."),
            PETRA_OPTION("trace", "FILE", trace,
                         "writes a trace of every action for the viewers of Chrome and Perfetto; prints a line if it "
                         "may exceed 500 MB"),
            PETRA_OPTION("chakra", "DIR", chakra,
                         "writes MLCommons Chakra execution traces, the workloads of ASTRA-sim: DIR/petra.N.et for "
                         "device N, counted from 0 (docs/formats.md). Existing files of these names are an error; "
                         "--overwrite replaces them."),
            PETRA_OPTION("critical-path", NULL, critical_path,
                         "prints the actions and messages that determine the makespan; stores every action in memory. "
                         "It prints the nanoseconds of forward, backward, weight gradient, update, and of "
                         "transmission, latency and queueing of messages along the critical path. Their sum is exactly "
                         "the makespan. It stores about 40 bytes per action, for at most 50 million actions."),
            PETRA_OPTION("memory", "measured|paper|strict", memory,
                         "selects the accounting of memory. measured (the default) is the memory that a training would "
                         "allocate; paper counts as table 3 of the paper does; strict counts every stream."),
            PETRA_OPTION("fit", "FILE", fit, "the measured times to fit the config to"),
            PETRA_OPTION("vary", "KEYS", vary, "the keys whose numbers --fit changes"),
            PETRA_OPTION("requests", "FILE", requests,
                         "answers the requests of another program, one JSON object a line (docs/requests.md), instead "
                         "of a config; - reads them from standard input"),
            {0}},
    .run = run};
