/* SPDX-License-Identifier: Apache-2.0 */
/* petra plan: the methods, cuts and recomputation that are worth running on a cluster, with the settings that run
 * them. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/rows.h"
#include "setup/describe.h"
#include "search/search.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct planning {
  const petra_arguments *arguments;
  const petra_config *config;
  petra_candidates *candidates;
  petra_search_options options;
  petra_search_result result;
} planning;

/* --- options --- */

/* Reads "80GB", "64GiB", "1.5e9". */
static petra_status read_bytes(const char *text, int64_t *out) {
  static const struct {
    const char *unit;
    double bytes;
  } units[] = {{"", 1},
               {"B", 1},
               {"KB", 1e3},
               {"kB", 1e3},
               {"MB", 1e6},
               {"GB", 1e9},
               {"TB", 1e12},
               {"KiB", 1024},
               {"MiB", 1048576.0},
               {"GiB", 1073741824.0},
               {"TiB", 1099511627776.0}};
  char *end;
  errno = 0;
  const double number = strtod(text, &end);
  /* hexadecimal numbers are refused */
  const bool digits = ((*text >= '0' && *text <= '9') || *text == '.') && !strpbrk(text, "xX");
  for (size_t i = 0; digits && end > text && i < sizeof units / sizeof *units; i++) {
    const double bytes = number * units[i].bytes;
    if (strcmp(end, units[i].unit) != 0 || !(bytes >= 1) || bytes > 1e18)
      continue;
    *out = (int64_t)bytes;
    return PETRA_OK;
  }
  return petra_fail(PETRA_USAGE,
                    "--memory: '%s'; expected 1 to 1e18 bytes, such as 80GB, 64GiB or 512MB (units B, kB, MB, GB, TB, "
                    "KiB, MiB, GiB, TiB)",
                    text);
}

static petra_status read_integer(const char *option, const char *text, long least, long maximum, int *out) {
  char *end = NULL;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (end == text || *end || errno || value < least || value > maximum || strspn(text, "0123456789") != strlen(text))
    return petra_fail(PETRA_USAGE, "%s: '%s'; expected an integer, %ld .. %ld", option, text, least, maximum);
  *out = (int)value;
  return PETRA_OK;
}

static petra_status read_options(planning *p, int32_t *devices) {
  const petra_arguments *a = p->arguments;
  int number = 0;
  p->options = (petra_search_options){.exact = a->exact, .lag_max = -1};
  *devices = 0;
  if (a->memory)
    PETRA_TRY(read_bytes(a->memory, &p->options.memory_bytes));
  if (a->devices)
    PETRA_TRY(read_integer("--devices", a->devices, 1, 100000, devices));
  if (a->lag_at_most) {
    PETRA_TRY(read_integer("--lag-at-most", a->lag_at_most, 0, 1000000, &number));
    p->options.lag_max = number;
  }
  return PETRA_OK;
}

static petra_status check(const planning *p) {
  if (p->arguments->memory && p->config->cluster.stages > 0)
    return petra_config_fail(
        p->config, "cluster.stages",
        "%lld stages without a model with --memory, which limits the memory of a model; expected 0",
        (long long)p->config->cluster.stages);
  if (p->config->cluster.placement.count > 0)
    return petra_config_fail(p->config, "cluster.placement",
                             "a list of processes, but candidates have different stages; expected []");
  return PETRA_OK;
}

/* --- the content of a row --- */

static int64_t accumulate_of(const planning *p, const petra_point *point) {
  return point->candidate.accumulate > 0 ? point->candidate.accumulate : p->config->method.accumulate;
}

static petra_status print_setting(void *context, const char *setting) {
  PETRA_FREED char *word = NULL;
  (void)context;
  PETRA_TRY(petra_allocate(&word, 4 * strlen(setting) + 4, 1));
  petra_shell_append(word, setting);
  petra_utf8_print(stdout, " --set %s", word);
  return PETRA_OK;
}

static petra_status append_setting(void *context, const char *setting) {
  petra_json_append(context, petra_json_string(setting));
  return PETRA_OK;
}

/* --- output --- */

/* Adds the point as row `number`, from 1. */
static petra_status add_point(petra_rows *rows, const planning *p, int number) {
  const petra_point *point = &p->result.points.point[number - 1];
  const petra_candidate *candidate = &point->candidate;
  const bool model = p->config->cluster.stages == 0;
  const char *keep = petra_keep_name(point->found.keep);
  petra_rows_next(rows);
  petra_row_integer(rows, "row", NULL, number);
  petra_row_text(rows, "method", "method", candidate->method.name);
  petra_row_text(rows, NULL, "program", candidate->method.program->name);
  petra_row_integer(rows, "stages", "stages", candidate->stages);
  petra_row_integer(rows, "k", "accumulate", accumulate_of(p, point));
  petra_row_cell(rows, "keeps", PETRA_TABLE_LEFT, "%s%s", keep, candidate->early_recompute ? ", early" : "");
  petra_row_text(rows, NULL, "keep", keep);
  petra_row_choice(rows, NULL, "early_recompute", candidate->early_recompute, "yes", "no");
  if (p->arguments->json) {
    json_t *blocks = json_array();
    for (int32_t j = 0; candidate->blocks && j < candidate->stages; j++)
      petra_json_append(&blocks, json_integer(candidate->blocks[j]));
    petra_row_member(rows, "blocks", blocks);
  }
  petra_row_significant(rows, model ? "s/sample" : "s/microbatch", NULL, point->seconds, 6);
  petra_row_significant(rows, NULL, "seconds_per_sample", model ? point->seconds : NAN, 6);
  petra_row_significant(rows, NULL, "time_per_microbatch_s", point->found.time_per_microbatch_s, 6);
  petra_row_real(rows, "bubble", "bubble_fraction", point->found.bubble_fraction, 1, 4);
  petra_row_megabytes(rows, "peak MB", "peak_bytes", point->found.peak_bytes);
  petra_row_integer(rows, "lag max", "lag_max", point->found.lag_max);
  petra_row_choice(rows, "gradients", "exact", point->exact, "exact", "delayed");
  if (!p->arguments->json)
    return PETRA_OK;
  json_t *settings = json_array();
  PETRA_TRY(petra_candidate_settings(p->candidates, candidate, append_setting, &settings));
  petra_row_member(rows, "set", settings);
  return PETRA_OK;
}

/* Creates the rows. `shown` selects the points to add; NULL: all points. */
static petra_status make_rows(const planning *p, const bool *shown, petra_rows **out) {
  PETRA_TRY(petra_rows_create(p->arguments->json, out));
  for (int i = 1; i <= p->result.points.count; i++)
    if (!shown || shown[i - 1])
      PETRA_TRY(add_point(*out, p, i));
  return PETRA_OK;
}

static petra_status print_json(const planning *p) {
  petra_rows *rows;
  PETRA_TRY(make_rows(p, NULL, &rows));
  return petra_json_print_new(json_pack(
      "{s:i, s:i, s:o, s:b, s:o, s:I, s:I, s:I, s:o}", "schema", PETRA_SCHEMA_PLAN, "devices",
      (int)p->candidates->devices, "memory_bytes",
      p->options.memory_bytes > 0 ? json_integer(p->options.memory_bytes) : json_null(), "exact", p->options.exact,
      "lag_at_most", p->options.lag_max < 0 ? json_null() : json_integer(p->options.lag_max), "samples_per_update",
      (json_int_t)(p->config->data.batch * p->config->method.accumulate * p->config->cluster.replicas), "simulated",
      (json_int_t)p->result.simulated, "excluded", (json_int_t)p->result.excluded, "points", petra_rows_list(rows)));
}

/* Chooses the rows to print. A row is omitted if a printed row of the same method is faster, has no larger lag and
 * needs at most a tenth more memory. Sets shown[i] if row i is printed; returns the number of other rows. */
static int64_t choose_rows(const planning *p, bool *shown) {
  const petra_point *point = p->result.points.point;
  int64_t others = 0;
  for (int64_t i = 0; i < p->result.points.count; i++) {
    shown[i] = true;
    for (int64_t j = 0; j < i && !p->arguments->all && shown[i]; j++)
      shown[i] = !shown[j] || strcmp(point[j].candidate.method.name, point[i].candidate.method.name) != 0 ||
                 point[j].found.lag_max > point[i].found.lag_max ||
                 (double)point[j].found.peak_bytes > 1.1 * (double)point[i].found.peak_bytes;
    others += !shown[i];
  }
  return others;
}

static petra_status print_settings(const planning *p, const bool *shown) {
  for (int i = 1; i <= p->result.points.count; i++) {
    if (!shown[i - 1])
      continue;
    printf("%3d ", i);
    PETRA_TRY(petra_candidate_settings(p->candidates, &p->result.points.point[i - 1].candidate, print_setting, NULL));
    putchar('\n');
  }
  return PETRA_OK;
}

static petra_status print_table(const planning *p) {
  PETRA_FREED bool *shown = NULL;
  const petra_config *config = p->config;
  const int64_t samples = config->data.batch * config->method.accumulate * config->cluster.replicas;
  PETRA_TRY(petra_allocate(&shown, (size_t)p->result.points.count, sizeof *shown));
  const int64_t others = choose_rows(p, shown);
  petra_rows *rows;
  fputs("network  ", stdout);
  petra_describe_network(config, stdout);
  printf("\ndevices  %d, %lld engine%s per device", p->candidates->devices, (long long)config->cluster.engines,
         config->cluster.engines == 1 ? "" : "s");
  if (config->cluster.stages == 0)
    printf("; %lld %s per update", (long long)samples, petra_sample_words_of(petra_sample_kind_of(config))->samples);
  fputs("\ncosts    ", stdout);
  PETRA_TRY(petra_describe_costs(config, stdout));
  fputs("\nlinks    ", stdout);
  petra_describe_links(config, false, stdout);
  printf("\nsearch   %lld candidates simulated, %lld excluded by bounds\n\n", (long long)p->result.simulated,
         (long long)p->result.excluded);
  PETRA_TRY(make_rows(p, shown, &rows));
  PETRA_TRY(petra_rows_print(rows));
  printf("\nNo other candidate that was considered is as fast as a row with as little memory and lag.\n");
  if (others > 0)
    printf("%lld more row%s (--all): a printed row of the same method is faster, with no larger lag and at most 10 %% "
           "more memory.\n",
           (long long)others, others == 1 ? "" : "s");
  printf("Time, memory and lag are computed; the loss is not. With delayed gradients a loss may take more updates.\n"
         "k: microbatches per update; keeps: what is kept between F and B; bubble: share of the run in which a device "
         "is idle\n"
         "peak MB: maximum memory of a device in 10^6 bytes; lag max: maximum number of updates of a stage between F "
         "and B\n"
         "\nSettings of each row, for petra simulate and petra train:\n");
  return print_settings(p, shown);
}

/* --- the search --- */

/* Reports that no candidate is within the limits, with the smallest memory of the candidates that are within the other
 * limits. */
static petra_status fail_limits(planning *p) {
  petra_search_options options = p->options;
  const petra_point *least = NULL;
  const char *gradients = options.exact ? " with exact gradients" : "";
  options.memory_bytes = 0;
  petra_search_fini(&p->result);
  if (p->options.memory_bytes > 0)
    PETRA_TRY(petra_search(p->candidates, &options, &p->result));
  for (int64_t i = 0; i < p->result.points.count; i++)
    if (!least || p->result.points.point[i].found.peak_bytes < least->found.peak_bytes)
      least = &p->result.points.point[i];
  if (!least)
    return petra_fail(PETRA_CONFIG, "--lag-at-most %s: every candidate%s has a larger lag", p->arguments->lag_at_most,
                      gradients);
  return petra_fail(PETRA_CONFIG,
                    "--memory %s: no candidate%s fits; the least memory is %lld bytes, of %s on %d stages, k = %lld, "
                    "method.keep: %s",
                    p->arguments->memory, gradients, (long long)least->found.peak_bytes, least->candidate.method.name,
                    least->candidate.stages, (long long)accumulate_of(p, least), petra_keep_name(least->found.keep));
}

/* Warns of short runs, in which the first microbatches, which read the first weights, hide the lag. */
static void warn_of_short_runs(const planning *p) {
  for (int64_t i = 0; i < p->result.points.count; i++) {
    const petra_point *point = &p->result.points.point[i];
    const int64_t enough = 2 * (int64_t)point->candidate.stages + accumulate_of(p, point);
    if (point->candidate.method.program->moment == PETRA_MOMENT_WINDOW || point->found.microbatches >= enough)
      continue;
    petra_log(PETRA_LOG_WARNING,
              "%s on %d stages was simulated for %lld microbatches, too few for the lag to reach its final value; "
              "expected at least %lld (run.max_microbatches, run.epochs)",
              point->candidate.method.name, point->candidate.stages, (long long)point->found.microbatches,
              (long long)enough);
    return;
  }
}

static petra_status search(planning *p) {
  PETRA_TRY(petra_search(p->candidates, &p->options, &p->result));
  if (p->result.points.count == 0)
    return fail_limits(p);
  warn_of_short_runs(p);
  return p->arguments->json ? print_json(p) : print_table(p);
}

static void planning_fini(planning *p) {
  petra_search_fini(&p->result);
  petra_candidates_destroy(p->candidates);
}

static petra_status run(const petra_arguments *arguments) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_FINISHED(planning_fini) planning p = {.arguments = arguments};
  int32_t devices;
  PETRA_TRY(read_options(&p, &devices));
  PETRA_TRY(petra_arguments_config(arguments, "plan", &config));
  p.config = config;
  PETRA_TRY(check(&p));
  PETRA_TRY(petra_candidates_create(config, devices, &p.candidates));
  return search(&p);
}

const petra_command petra_command_plan = {
    .name = "plan",
    .summary = "searches methods, cuts and recomputation for what fits and is fast",
    .arguments =
        "CONFIG.yaml [--set KEY=VALUE]... [--memory SIZE] [--devices N] [--exact] [--lag-at-most L] [--all] [--json]",
    .help =
        "Simulates the network, costs and links of a config with all methods, stages per device, cuts of the network\n"
        "into stages, numbers k of microbatches per update and kinds of recomputation. A candidate is a\n"
        "row unless another is at least as good in time, memory of the fullest device and lag. A row is only\n"
        "counted if a printed row of the same method is faster, with no larger lag and at most 10 % more memory\n"
        "(--all and --json print it). Each row has the settings with which `petra simulate` prints its figures\n"
        "and `petra train` trains it. The loss is not computed: with delayed gradients a loss may take more\n"
        "updates.\n"
        "\n"
        "Stages per device: one; two in a V; one to four in a loop (without a model one or two), or up to\n"
        "method.chunks. The samples per update stay those of the config (data.batch x method.accumulate x\n"
        "cluster.replicas), since the optimiser sees them. If costs are counted from kernels\n"
        "(cluster.cost.model: roofline or kernels), k runs over all divisors of data.batch x method.accumulate;\n"
        "otherwise k stays that of the config. Methods whose backward reads the same weights as the forward are\n"
        "tried with and without recomputation (method.keep), because their gradients do not depend on it.\n"
        "\n"
        "If costs are known for each block (roofline, kernels, a profile with one block per stage), the network is\n"
        "cut anew. With at most 2,000 cuts into that many stages, all are considered. With more, dynamic\n"
        "programming finds for each memory limit the cut whose slowest stage is fastest. petra simulates these\n"
        "and moves each boundary of a row by one block as long as that gives a better row. Otherwise the stages of the "
        "config are\n"
        "used, or stages.partition: balanced for another number of stages.\n"
        "\n"
        "Of the section method, petra plan uses only accumulate, chunks and credit, as `petra methods` does.\n"
        "petra skips a simulation only if a lower bound of time and memory shows that the candidate does not fit\n"
        "or that a row is at least as good.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("memory", "SIZE", memory,
                         "maximum memory of a device, such as 80GB (10^9 bytes), 64GiB (2^30 bytes), 512MB or a number "
                         "of bytes (default: no limit)"),
            PETRA_OPTION("devices", "N", devices,
                         "number of devices (default: as many as the method of the config uses)"),
            PETRA_OPTION("all", NULL, all, "prints every row of the table"),
            PETRA_OPTION("exact", NULL, exact, "only methods with exact gradients"),
            PETRA_OPTION("lag-at-most", "L", lag_at_most, "only candidates whose largest lag is at most L updates"),
            {0}},
    .run = run};
