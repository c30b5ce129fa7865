/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of probes share: a training whose probes, weights after every update and actions are kept. */
#pragma once

#include "harness.h"
#include "tolerances.h"
#include "training.h"

#include "base/mem.h"
#include "stage/stage_private.h"

#include <math.h>

#define SMALL "model.depth=18", "model.width=1", "data.batch=2", "optim.lr=0.02", "device.threads=1"
#define DOUBLE "device.backend=ref", "device.precision=fp64"
#define FOUR_STAGES "stages.partition=list", "stages.blocks=[1, 4, 3, 2]"

/* Behind SMALL: a RevGPT of as many blocks. */
#define TRANSFORMER                                                                                                    \
  "model.family=revgpt", "model.depth=4", "model.width=2", "model.heads=1", "model.context=4", "data.set=grammar",     \
      "data.limit=960"

enum { ROWS = 32, STAGES = 10, VERSIONS = 64, ACTIONS = 4096 };

/* A row of a probe, and the gradients in it as arrays over all parameters of the network. */
typedef struct found {
  int64_t microbatch;
  int32_t stages, parameters;
  double *stage, *concatenated, *reconstruction, *parameter;
  double *gradients[PETRA_GRADIENTS];
} found;

/* What a run showed. */
typedef struct observed {
  training *run;
  found rows[ROWS];
  int count;
  double *weights[STAGES][VERSIONS]; /* of a stage after so many updates */
  double *read[STAGES][VERSIONS];    /* what its F reads then */
  petra_trace_row actions[ACTIONS];
  int action_count;
} observed;

/* Values of the parameters of blocks first .. end - 1. */
int64_t elements_of(const training *run, int first, int end);
/* Tensors of a set to a place in an array, which moves on. */
petra_status download(const training *run, const petra_tensor_set *set, double **to);
double *copy_of(const double *values, size_t count);

/* Runs the training and keeps what it shows; observed_fini must follow. */
void observe(observed *o, training *run);
void observed_fini(observed *o);

static inline double stage_value(const found *f, int measure, int pair, int j) {
  return f->stage[(measure * PETRA_PAIRS + pair) * f->stages + j];
}

static inline double parameter_value(const found *f, int measure, int pair, int p) {
  return f->parameter[(measure * PETRA_PAIRS + pair) * f->parameters + p];
}

double dot(const double *x, const double *y, int64_t count);
/* ||x - y|| / ||y|| */
double apart(const double *x, const double *y, int64_t count);
/* The figures of a row again, from the gradients in it. */
void check_figures(const observed *o, const found *f);
