/* SPDX-License-Identifier: Apache-2.0 */
/* petra profile: measures the costs of a config's stages on this device. */
#include "base/json.h"
#include "io/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "base/release.h"
#include "cli/command.h"
#include "cli/rows.h"
#include "setup/describe.h"
#include "run/folder.h"
#include "record/run_h5.h"
#include "profile/profile.h"
#include "group/ranks.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct profiling {
  const petra_arguments *arguments;
  petra_config *config;
  petra_plan plan;
  petra_backend *backend;
  petra_ranks *ranks; /* NULL: only this process */
  char *path;         /* path of the profile; used on rank 0 */
  petra_profile profile;
  petra_kernel_fit fit;
} profiling;

static bool writes(const profiling *p) {
  return !p->ranks || p->ranks->rank == 0;
}

/* Determines the path of the profile and checks that it can be written, before minutes are spent on the measurement. */
static petra_status find_path(profiling *p) {
  PETRA_FREED char *directory = NULL, *parent = NULL;
  struct stat info;
  if (p->arguments->output) {
    PETRA_TRY(petra_duplicate_string(&p->path, p->arguments->output));
  } else {
    PETRA_TRY(petra_folder_of(p->config, NULL, &directory));
    PETRA_TRY(petra_join_path(directory, "profile.h5", &p->path));
  }
  if (stat(p->path, &info) == 0 && !S_ISREG(info.st_mode))
    return petra_fail(PETRA_IO, "%s: cannot write: expected a regular file or a new name", p->path);
  PETRA_TRY(petra_duplicate_string(&parent, p->path));
  char *slash = strrchr(parent, '/');
  if (slash)
    slash[slash == parent] = 0;
  return access(slash ? parent : ".", W_OK) == 0
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s: cannot write: %s", p->path, strerror(errno));
}

static void describe(profiling *p) {
  petra_profile *profile = &p->profile;
  petra_plan_describe_profile(&p->plan, profile);
  profile->stages = p->plan.partition.stages;
  profile->ranks = p->ranks ? p->ranks->count : 1;
  for (int j = 0; j < profile->stages; j++) {
    petra_stage_summary summary;
    petra_plan_stage_summary(&p->plan, j, &summary);
    profile->stage[j].blocks = p->plan.partition.first[j + 1] - p->plan.partition.first[j];
    profile->stage[j].forward_bytes = summary.forward_bytes;
    profile->stage[j].backward_bytes = summary.backward_bytes;
  }
}

static petra_status prepare(profiling *p) {
  p->config->cluster.cost.model = PETRA_COST_UNIT; /* the measurement must not depend on a profile */
  PETRA_TRY(petra_plan_init(&p->plan, p->config));
  if (p->plan.method.program->local)
    return petra_config_fail(p->config, "method.name",
                             "%s, whose auxiliary heads petra profile does not measure; expected another method",
                             p->plan.method.name);
  PETRA_TRY(petra_plan_check_norms(&p->plan));
  if (writes(p))
    PETRA_TRY(find_path(p));
  PETRA_TRY(petra_allocate(&p->profile.stage, (size_t)p->plan.partition.stages, sizeof *p->profile.stage));
  describe(p);
  return petra_network_backend(&p->plan, NULL, &p->backend);
}

/* Adds the members of a spread that follow its mean. */
static void add_spread(petra_rows *rows, const petra_spread *spread) {
  petra_row_real(rows, NULL, "median_s", spread->median, 1, 0);
  petra_row_real(rows, NULL, "min_s", spread->min, 1, 0);
  petra_row_real(rows, NULL, "quartile1_s", spread->quartile1, 1, 0);
  petra_row_real(rows, NULL, "quartile3_s", spread->quartile3, 1, 0);
  petra_row_real(rows, NULL, "max_s", spread->max, 1, 0);
}

static json_t *spread_json(const petra_spread *spread) {
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "mean_s", petra_json_real(spread->mean), "median_s",
                   petra_json_real(spread->median), "min_s", petra_json_real(spread->min), "quartile1_s",
                   petra_json_real(spread->quartile1), "quartile3_s", petra_json_real(spread->quartile3), "max_s",
                   petra_json_real(spread->max));
}

/* Returns the interquartile range over the median, in percent; 0 if nothing was measured. */
static double spread_percent(const petra_spread *spread) {
  return spread->median > 0 ? 100 * (spread->quartile3 - spread->quartile1) / spread->median : 0;
}

/* Adds a part of a stage: its mean is in the table in milliseconds. */
static void add_part(petra_rows *rows, const profiling *p, const petra_profile_stage *stage, int part) {
  static const char *const headings[PETRA_PROFILE_PARTS] = {"forward", "backward", "reconstruct", "weight gradient",
                                                            "update"};
  petra_row_real(rows, headings[part], NULL, stage->part[part].mean, 1e3, 3);
  if (!p->arguments->json)
    return;
  json_t *object = spread_json(&stage->part[part]);
  petra_json_set(&object, "alone_s", p->profile.has_alone ? petra_json_real(stage->alone_s[part]) : json_null());
  petra_row_member(rows, petra_profile_part_name((petra_profile_part)part), object);
}

static petra_status make_stages(const profiling *p, petra_rows **out) {
  PETRA_TRY(petra_rows_create(p->arguments->json, out));
  for (int j = 0; j < p->profile.stages; j++) {
    const petra_profile_stage *stage = &p->profile.stage[j];
    petra_stage_summary summary;
    petra_plan_stage_summary(&p->plan, j, &summary);
    petra_rows_next(*out);
    petra_row_integer(*out, "stage", "stage", j + 1);
    petra_row_text(*out, "name", "name", summary.name);
    petra_row_integer(*out, NULL, "blocks", stage->blocks);
    petra_row_integer(*out, NULL, "forward_bytes", stage->forward_bytes);
    petra_row_integer(*out, NULL, "backward_bytes", stage->backward_bytes);
    for (int part = 0; part < PETRA_PROFILE_PARTS; part++)
      add_part(*out, p, stage, part);
    petra_row_cell(*out, "spread F", PETRA_TABLE_RIGHT, "%.1f%%", spread_percent(&stage->part[PETRA_PROFILE_FORWARD]));
    petra_row_cell(*out, "spread B", PETRA_TABLE_RIGHT, "%.1f%%", spread_percent(&stage->part[PETRA_PROFILE_BACKWARD]));
  }
  return PETRA_OK;
}

static petra_status make_messages(const profiling *p, petra_rows **out) {
  PETRA_TRY(petra_rows_create(p->arguments->json, out));
  for (int i = 0; i < p->profile.messages; i++) {
    const petra_profile_message *m = &p->profile.message[i];
    petra_rows_next(*out);
    petra_row_integer(*out, "bytes", NULL, m->bytes);
    petra_row_real(*out, "one way ms", NULL, m->alone.mean, 1e3, 4);
    petra_row_real(*out, "both ways", "mean_s", m->time.mean, 1e3, 4);
    petra_row_cell(*out, "quartiles", PETRA_TABLE_RIGHT, "%.4f .. %.4f", 1e3 * m->time.quartile1,
                   1e3 * m->time.quartile3);
    petra_row_real(*out, "MB/s", NULL, m->time.mean > 0 ? 1e-6 * (double)m->bytes / m->time.mean : 0, 1, 1);
    add_spread(*out, &m->time);
    petra_row_member(*out, "alone", spread_json(&m->alone));
    petra_row_integer(*out, NULL, "bytes", m->bytes);
    petra_row_real(*out, "pack", "pack_s", m->pack_s, 1e3, 4);
    petra_row_real(*out, "unpack", "unpack_s", m->unpack_s, 1e3, 4);
    petra_row_real(*out, "carry", "carry_s", m->carry_s, 1e3, 4);
  }
  return PETRA_OK;
}

/* Returns null if nothing was fitted. */
static json_t *fit_json(const petra_kernel_fit *fit) {
  if (!fit->device)
    return json_null();
  json_t *unlimited = json_array();
  for (int i = 0; i < PETRA_FIT_RATES; i++)
    if (fit->unlimited[i])
      petra_json_append(&unlimited, json_string(petra_fit_rate_name(i)));
  return json_pack("{s:s, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o}", "device", fit->device, "launch_s",
                   petra_json_real(fit->rates.launch_s), "matrix_flops", petra_json_real(fit->rates.matrix_flops),
                   "matrix_bytes", petra_json_real(fit->rates.matrix_bytes), "elementwise_bytes",
                   petra_json_real(fit->rates.elementwise_bytes), "times", fit->times, "rms_log",
                   petra_json_real(fit->rms), "worst_log", petra_json_real(fit->worst), "unlimited", unlimited);
}

static petra_status print_json(const profiling *p, const petra_profile_about *about) {
  char format[PETRA_DESCRIBE_MESSAGES];
  petra_rows *stages, *link;
  PETRA_TRY(make_stages(p, &stages));
  PETRA_TRY(make_messages(p, &link));
  return petra_json_print_new(
      json_pack("{s:o, s:o, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s?, s:o, s:o, s:o}", "profile",
                petra_json_string(p->path), "backend", petra_json_string(about->backend), "precision",
                p->profile.precision, "method", about->method, "threads", (int)about->threads, "batch",
                (int)p->profile.batch, "warmup", (int)about->warmup, "repetitions", (int)about->repetitions, "ranks",
                (int)p->profile.ranks, "message_precision", petra_describe_message_precision(p->config, format), "link",
                petra_rows_list(link), "kernels", fit_json(&p->fit), "stages", petra_rows_list(stages)));
}

/* Returns the time of F and B of all stages while the other ranks wait, divided by their time while all ranks compute;
 * NaN if nothing was measured. */
static double alone_ratio(const petra_profile *profile) {
  double alone_s = 0, together_s = 0;
  for (int j = 0; j < profile->stages; j++)
    for (int part = PETRA_PROFILE_FORWARD; part <= PETRA_PROFILE_RECONSTRUCT; part++) {
      alone_s += profile->stage[j].alone_s[part];
      together_s += profile->stage[j].part[part].mean;
    }
  return together_s > 0 ? alone_s / together_s : NAN;
}

/* Prints the times of messages between ranks. */
static petra_status print_link(const profiling *p) {
  char format[PETRA_DESCRIBE_MESSAGES];
  const char *messages = petra_describe_messages(p->config, format);
  const petra_profile *profile = &p->profile;
  petra_rows *rows;
  if (profile->messages == 0)
    return PETRA_OK;
  PETRA_TRY(make_messages(p, &rows));
  printf("\nwhile one process computes and the others wait, the stages take %.2f times as long\n",
         alone_ratio(profile));
  printf("\nmessages between %d processes, which measured the stages at the same time; both ways: with a message of "
         "the same size in the other direction; pack, unpack: conversion from and to tensors; carry: time that a "
         "computing process loses meanwhile%s%s\n",
         (int)profile->ranks, messages ? "; messages " : "", messages ? messages : "");
  return petra_rows_print(rows);
}

/* Prints the result as keys of a config. */
static void print_fit(const petra_kernel_fit *fit) {
  if (!fit->device)
    return;
  printf("\nas kernels (cluster.cost) {model: kernels, device: %s, launch_s: %.4g, efficiency: {matrix_flops: %.4g, "
         "matrix_bytes: %.4g, elementwise_bytes: %.4g}}:\n4 numbers fitted to %d times, which are %.0f %% off "
         "(weighted root mean square), %.0f %% at most\n",
         fit->device, fit->rates.launch_s, fit->rates.matrix_flops, fit->rates.matrix_bytes,
         fit->rates.elementwise_bytes, fit->times, 100 * expm1(fit->rms), 100 * expm1(fit->worst));
  for (int i = 0; i < PETRA_FIT_RATES; i++)
    if (fit->unlimited[i])
      printf("these times give no upper limit for %s: twice the value fits as well\n", petra_fit_rate_name(i));
}

static petra_status print_table(const profiling *p, const petra_profile_about *about) {
  petra_rows *rows;
  PETRA_TRY(make_stages(p, &rows));
  PETRA_TRY(petra_rows_print(rows));
  print_fit(&p->fit);
  PETRA_TRY(print_link(p));
  printf("\nMilliseconds per microbatch of %d %s: means of %d repetitions%s; spread: interquartile range / median.\n",
         (int)p->profile.batch, petra_sample_words_of(petra_sample_kind_of(p->config))->samples,
         (int)about->repetitions, p->profile.ranks > 1 ? " of each process" : "");
  petra_utf8_print(stdout, "Weight gradient is a part of backward. %s; %s\n", about->backend, p->profile.precision);
  petra_utf8_print(stdout, "written: %s\n", p->path);
  return PETRA_OK;
}

/* Prints one line if another measurement would give other results. */
static void warn_of_spread(const profiling *p) {
  const petra_profile_unsure unsure = petra_profile_find_unsure(&p->profile);
  const petra_spread *spread = &p->profile.stage[unsure.stage].part[unsure.part];
  petra_stage_summary summary;
  if (unsure.count == 0)
    return;
  petra_plan_stage_summary(&p->plan, unsure.stage, &summary);
  petra_log(PETRA_LOG_WARNING,
            "stage %d (%s), %s: quartiles of %.3g and %.3g ms around a median of %.3g ms (%d part%s of stages with "
            "such a spread); expected an idle machine, or more repetitions than profile.repetitions: %lld",
            unsure.stage + 1, summary.name, petra_profile_part_name(unsure.part), 1e3 * spread->quartile1,
            1e3 * spread->quartile3, 1e3 * spread->median, unsure.count, unsure.count == 1 ? "" : "s",
            (long long)p->config->profile.repetitions);
}

static petra_status write_and_report(profiling *p) {
  const petra_config *config = p->config;
  char backend[256], libraries[256];
  p->backend->ops->describe(p->backend, backend, sizeof backend);
  petra_libraries_describe(libraries, sizeof libraries);
  const petra_profile_about about = {.command = p->arguments->command_line,
                                     .backend = backend,
                                     .libraries = libraries,
                                     .method = p->plan.method.name,
                                     .threads = p->backend->threads,
                                     .accumulate = (int32_t)config->method.accumulate,
                                     .warmup = (int32_t)config->profile.warmup,
                                     .repetitions = (int32_t)config->profile.repetitions};
  PETRA_TRY(petra_profile_write(p->path, &p->profile, &about));
  PETRA_TRY(petra_profile_fit(&p->plan, &p->profile, &p->fit));
  warn_of_spread(p);
  if (p->arguments->json)
    return print_json(p, &about);
  return p->arguments->quiet ? PETRA_OK : print_table(p, &about);
}

/* Prints the values that the ranks compare. */
static petra_status print_all(const void *context, FILE *out) {
  const profiling *p = context;
  char text[256];
  p->backend->ops->describe(p->backend, text, sizeof text);
  fprintf(out, "petra %s (%s)\nbackend %s\n", petra_version(), petra_version_git_commit(), text);
  return petra_config_print(p->config, out);
}

/* Checks, before anything is measured, that all ranks have reached this point with the same config. */
static petra_status agree(profiling *p, petra_status status) {
  PETRA_FREED char *text = NULL;
  size_t size;
  if (!p->ranks)
    return status;
  if (status == PETRA_OK)
    status = petra_text_print(print_all, p, "what the ranks compare", &text, &size);
  return petra_ranks_agree(p->ranks, status, text);
}

static petra_status measure(profiling *p) {
  const bool quiet = p->arguments->quiet || !writes(p);
  PETRA_TRY(petra_profile_measure(&p->plan, p->backend, p->ranks, quiet, p->profile.stage));
  if (!p->ranks || p->ranks->count == 1)
    return PETRA_OK;
  PETRA_TRY(petra_ranks_hosts(p->ranks, &p->profile.hosts));
  PETRA_TRY(petra_profile_measure_alone(&p->plan, p->backend, p->ranks, &p->profile));
  return petra_profile_measure_link(&p->plan, p->backend, p->ranks, &p->profile);
}

static petra_status run(const petra_arguments *arguments) {
  profiling p = {.arguments = arguments};
  petra_status status;
  petra_ranks_hold_lines();
  status = petra_arguments_config(arguments, "profile", &p.config);
  if (petra_launcher_size(NULL) > 1 || (status == PETRA_OK && p.config->run.mode == PETRA_MODE_EXECUTE))
    status = petra_ranks_open(p.config ? p.config->cluster.timeout_s : PETRA_RANKS_TIMEOUT_S, status, &p.ranks);
  PETRA_TRY_GOTO(status, status, done);
  if (!p.ranks)
    petra_ranks_release_lines();
  status = agree(&p, prepare(&p));
  if (status == PETRA_OK)
    status = measure(&p);
  if (status == PETRA_OK && writes(&p))
    status = write_and_report(&p);
  if (status == PETRA_OK && p.ranks)
    status = petra_ranks_agree(p.ranks, status, NULL); /* all ranks wait for rank 0 */
done:
  petra_ranks_close(p.ranks, status); /* a failure ends the program there, on every rank */
  PETRA_FREE_ALL(p.profile.stage, p.path);
  petra_backend_destroy(p.backend);
  petra_plan_fini(&p.plan);
  petra_config_destroy(p.config);
  petra_ranks_release_lines();
  return status;
}

const petra_command petra_command_profile = {
    .name = "profile",
    .summary = "measures the time of each stage of a config on this device",
    .arguments = "CONFIG.yaml [--set KEY=VALUE]... [--output FILE] [--json] [--quiet]",
    .help = "Measures forward, backward, reconstruction, weight gradient and update of every stage on this device,\n"
            "with the backend, precision, threads and batch of the config, and writes a cost profile. `petra\n"
            "simulate` and `petra train` use it with cluster.cost.model: profile and cluster.cost.profile: FILE. The\n"
            "samples are random; nothing is trained.\n"
            "\n"
            "petra runs profile.warmup microbatches, then measures profile.repetitions microbatches. The costs are\n"
            "the means; a warning is printed if the times vary widely. A profile with one block per stage serves\n"
            "every partition of the network. petra also fits cluster.cost.model: kernels to the means. It prints the\n"
            "fitted launch time, the fitted efficiencies (as fractions of the peaks of cluster.cost.device; on a\n"
            "host: cpu-core) and the error of the fit. Under mpirun, all processes measure the stages at the same\n"
            "time and then the messages between them.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "FILE", output,
                         "the file to write (default: profile.h5 in run.output/run.name of the config)"),
            {0}},
    .ranks = true,
    .lasting = true,
    .run = run};
