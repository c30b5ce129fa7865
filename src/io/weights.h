/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h5: named tensors as data sets /parameters/SS/NAME, and /auxiliary/SS/NAME of the auxiliary heads, in an HDF5
 * file that is written whole (built in memory by the core driver, written aside, synced, renamed), so that a good file
 * is never replaced by half of one. */
#pragma once

#include "base/status.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

/* One tensor. `name` is the path below /parameters, such as "02/conv1/weight" or "01/bn/running_mean". */
typedef struct petra_weight {
  char name[64];
  int rank;         /* 1 .. 4 */
  int32_t shape[4]; /* (O, I, KH, KW), (O, I) or (n) */
  int64_t elements;
  double *values; /* dense, row-major; owned by the caller */
  bool auxiliary; /* it is below /auxiliary instead: SS is the stage of the head */
  bool skipped;   /* of a reader: not read; a file may lack it or have it in any shape */
} petra_weight;

/* The point of a run at which the weights were taken (run.keep: best). */
typedef struct petra_weights_moment {
  int32_t epoch; /* epoch after which they were evaluated, from 1; 0: unknown */
  bool by_loss;  /* what was compared: the evaluation's mean loss, else its top-1 accuracy */
  double value;  /* the value that was compared: a loss in nats, or an accuracy as a fraction */
} petra_weights_moment;

/* Evaluations are compared by loss, else by accuracy. */
static inline bool petra_weights_by_loss(petra_sample_kind samples) {
  return samples == PETRA_SAMPLE_TOKENS;
}

/* Returns true if the evaluation of `moment` is better than that of `best`, which came before it (epoch 0: none). */
static inline bool petra_weights_moment_beats(const petra_weights_moment *moment, const petra_weights_moment *best) {
  return best->epoch == 0 || (moment->by_loss ? moment->value < best->value : moment->value > best->value);
}

/* Gets values of tensors that lie elsewhere: `get` sets the values of weights[index]. */
typedef struct petra_weights_source {
  petra_status (*get)(void *context, int index, double *values);
  void *context;
} petra_weights_source;

/* Writes all tensors; f64 data sets if `as_f64`, else f32. Each data set has the attributes `units` ("1") and dimension
 * names. `moment` (NULL: unknown) becomes two attributes of the root, `model` ("revnet-18 width 64, cifar stem, 10
 * classes") one. If `values` of a tensor is NULL, `source` provides them when they are due, so that memory holds the
 * file twice and one tensor. Errors: PETRA_IO, with the path and the reason; the errors of `get`. A file at `path` is
 * then untouched. */
petra_status petra_weights_write(const char *path, const char *model, const petra_weight *weights, int count,
                                 bool as_f64, const petra_weights_moment *moment, const petra_weights_source *source);

/* Reads this from a weights file; the epoch is 0 if the file does not contain it. PETRA_IO, PETRA_DATA as below. */
petra_status petra_weights_read_moment(const char *path, petra_weights_moment *out);

/* Reads the attribute `model` of a weights file, to be freed; NULL if the file has none. PETRA_IO, PETRA_DATA as
 * below. */
petra_status petra_weights_read_model(const char *path, char **out);

/* Reads every tensor named in `weights` into its values, which the caller has allocated. PETRA_IO: cannot be
 * opened or read; PETRA_DATA: not an HDF5 file, no /parameters; a tensor is missing or has another shape
 * (file, tensor, found, expected), the file holds a tensor that is not asked for, a value is not finite. */
petra_status petra_weights_read(const char *path, petra_weight *weights, int count);
