/* SPDX-License-Identifier: Apache-2.0 */
/* /probe of run.h5: the measured differences between gradients. Schema: docs/hdf5-schema.md. */
#pragma once

#include "record/run_h5.h"

#include <stdbool.h>

/* A parameter tensor of the network. */
typedef struct petra_run_h5_parameter {
  char name[64]; /* "02/conv1/weight", as in weights.h5 */
  int32_t stage; /* from 1 */
  int32_t zero;  /* 1: its gradient is 0 in exact arithmetic */
  int rank;
  int32_t shape[4];
  const char *dimensions[4];
} petra_run_h5_parameter;

typedef struct petra_run_h5_probe_options {
  int32_t stages, parameters;
  const petra_run_h5_parameter *parameter;
  const char *const *measures, *const *pairs; /* names of the groups and of the data sets in them */
  int measure_count, pair_count;
  const char *const *gradients; /* names of the groups of raw gradients */
  int gradient_count;           /* 0: they are not logged */
  bool single;                  /* raw gradients as float32, else float64 */
  bool resumed;                 /* the log is resumed, and has the group */
} petra_run_h5_probe_options;

/* One row; J stages, P parameters. */
typedef struct petra_run_h5_probe_row {
  int64_t microbatch;
  int32_t epoch;
  const double *stage;          /* [measure][pair][J] */
  const double *concatenated;   /* [pair][J] */
  const double *reconstruction; /* [J] */
  const double *parameter;      /* [measure][pair][P] */
  /* Writes a raw gradient of parameter `parameter`, row-major, to `values`. */
  petra_status (*fetch)(void *context, int gradient, int32_t parameter, double *values);
  void *context;
} petra_run_h5_probe_row;

typedef struct petra_run_h5_probe petra_run_h5_probe;

/* Creates the group with its empty data sets, and the table of parameters. Everything in `options` is copied except
 * `parameter` and the names, which are borrowed. Errors as in run_h5.h. */
petra_status petra_run_h5_probe_create(petra_run_h5 *log, const petra_run_h5_probe_options *options,
                                       petra_run_h5_probe **out);

/* Appends a row, and flushes. */
petra_status petra_run_h5_probe_append(petra_run_h5_probe *probe, const petra_run_h5_probe_row *row);

/* Returns the number of rows in the file. */
int64_t petra_run_h5_probe_rows(const petra_run_h5_probe *probe);

/* Writes /probe/peak_bytes (category), the maximum memory of the probes. Call it once. */
petra_status petra_run_h5_probe_memory(petra_run_h5_probe *probe, const petra_account *account);

/* Frees the memory; the data sets are closed with the file. NULL is allowed. */
void petra_run_h5_probe_destroy(petra_run_h5_probe *probe);
