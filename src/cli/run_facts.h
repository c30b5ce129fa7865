/* SPDX-License-Identifier: Apache-2.0 */
/* A run as petra list and petra compare describe it: its log, its config, and whether it is running. Also JSON that
 * several subcommands print. */
#pragma once

#include "config/config.h"
#include "record/run_h5.h"
#include "record/run_h5_read.h"

typedef enum petra_run_state {
  PETRA_RUN_COMPLETE, /* the log says so */
  PETRA_RUN_RUNNING,  /* it does not, and a process on this machine has locked the folder */
  PETRA_RUN_STOPPED   /* neither: killed, failed, or running where the lock is not visible */
} petra_run_state;

typedef struct petra_run_facts {
  char *folder, *log; /* the folder as it was given (or that of the log), and its run.h5 */
  petra_run_h5_summary *summary;
  petra_config *config;
  petra_run_state state;
  char *method;    /* "petra, k = 4, with method.keep: graph" */
  char *network;   /* "RevNet-18, width 16, cifar stem" */
  char *optimiser; /* "adamw, lr 0.001" */
  char *data;      /* "grammar, windows of 128 tokens" */
} petra_run_facts;

bool petra_is_folder(const char *path);

/* Gets the log of a run: `place` itself or, if that is a folder, its run.h5. Free with petra_free. */
petra_status petra_run_log_path(const char *place, char **out);

/* Reads the run of `place`, a folder or its log. Call petra_run_facts_fini even on failure. Errors: those of
 * petra_run_h5_summary_read and of petra_config_load_text. */
petra_status petra_run_facts_init(petra_run_facts *facts, const char *place);
void petra_run_facts_fini(petra_run_facts *facts);

/* Returns "complete", "running", "stopped". */
const char *petra_run_state_name(petra_run_state state);

/* Returns true if nothing is computed in it; its log says so from the beginning. */
bool petra_run_is_simulated(const petra_run_facts *facts);

/* Returns true if it trains a network on data: it is not a simulation, and has a model. */
bool petra_run_trains(const petra_run_facts *facts);

/* Writes the name of the optimiser alone: "adamw". */
enum { PETRA_OPTIMISER_NAME = 64 };
void petra_run_optimiser_name(const petra_run_facts *facts, char out[PETRA_OPTIMISER_NAME]);

/* Returns "emulate", "execute", "simulate"; "pytorch" for a run of the PyTorch runtime. */
const char *petra_run_mode_name(const petra_run_facts *facts);

/* Returns the number of stages, for a run without a model that of the config. */
int64_t petra_run_stages(const petra_run_facts *facts);

/* JSON that several subcommands print: new objects; NULL without memory. */

struct json_t; /* jansson's */

/* Returns a row of /epoch; `recalibrated`: with the columns of a recalibration. */
struct json_t *petra_epoch_json(const petra_run_h5_epoch *row, petra_sample_kind samples, bool recalibrated);

/* Returns a stage's peaks: one per category, and all together. */
struct json_t *petra_peaks_json(const int64_t bytes[PETRA_MEMORY_CATEGORIES], int64_t total);

/* Describe what a run trains. The words for a run of the PyTorch runtime are those of its log, for any other run those
 * above. */
void petra_describe_run_network(const petra_run_h5_summary *run, const petra_config *config, FILE *out);
petra_status petra_describe_run_optimiser(const petra_run_h5_summary *run, const petra_config *config, FILE *out);
void petra_describe_run_data(const petra_run_h5_summary *run, const petra_config *config, FILE *out);
