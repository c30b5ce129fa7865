/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h5: named tensors as data sets /parameters/SS/NAME, and /auxiliary/SS/NAME of the auxiliary heads, in an HDF5
 * file. The file is built in memory by the core driver, written to a temporary file, synced and renamed, so that a good
 * file is never replaced by an incomplete one. */
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
  bool auxiliary; /* the tensor is below /auxiliary instead of /parameters; SS is the stage of the head */
  bool skipped;   /* for a reader: the tensor is not read; a file may lack it or have it in any shape */
} petra_weight;

/* The point of a run at which the weights were taken (run.keep: best). */
typedef struct petra_weights_moment {
  int32_t epoch; /* epoch after which they were evaluated, from 1; 0: unknown */
  bool by_loss;  /* true: the mean losses of evaluations were compared; false: their top-1 accuracies */
  double value;  /* the value that was compared: a loss in nats, or an accuracy as a fraction */
} petra_weights_moment;

/* Returns true if evaluations are compared by loss; otherwise they are compared by accuracy. */
static inline bool petra_weights_by_loss(petra_sample_kind samples) {
  return samples == PETRA_SAMPLE_TOKENS;
}

/* Returns true if the evaluation of `moment` is better than the evaluation of `best`, which came before it (epoch 0:
 * there is none). */
static inline bool petra_weights_moment_beats(const petra_weights_moment *moment, const petra_weights_moment *best) {
  return best->epoch == 0 || (moment->by_loss ? moment->value < best->value : moment->value > best->value);
}

/* Gets the values of tensors whose `values` is NULL: `get` sets the values of weights[index]. */
typedef struct petra_weights_source {
  petra_status (*get)(void *context, int index, double *values);
  void *context;
} petra_weights_source;

/* Writes all tensors; f64 data sets if `as_f64`, else f32. Each data set has the attributes `units` ("1") and dimension
 * names. `moment` (NULL: unknown) becomes two attributes of the root, `model` ("revnet-18 width 64, cifar stem, 10
 * classes") becomes one attribute. If `values` of a tensor is NULL, `source` provides the values when they are needed,
 * so that the memory contains the file twice and one tensor. Errors: PETRA_IO, with the path and the reason; the errors
 * of `get`. A file at `path` is then unchanged. */
petra_status petra_weights_write(const char *path, const char *model, const petra_weight *weights, int count,
                                 bool as_f64, const petra_weights_moment *moment, const petra_weights_source *source);

/* Reads the moment from a weights file; the epoch is 0 if the file does not contain it. Errors: PETRA_IO and
 * PETRA_DATA, as for petra_weights_read. */
petra_status petra_weights_read_moment(const char *path, petra_weights_moment *out);

/* Reads the attribute `model` of a weights file, to be freed; NULL if the file has none. Errors: PETRA_IO and
 * PETRA_DATA, as for petra_weights_read. */
petra_status petra_weights_read_model(const char *path, char **out);

/* Reads every tensor named in `weights` into its values, which the caller has allocated. PETRA_IO: the file cannot be
 * opened or read. PETRA_DATA: it is not an HDF5 file or has no /parameters, a tensor is missing or has another shape
 * (the message has file, tensor, found and expected shape), the file contains a tensor that was not requested, or a
 * value is not finite. */
petra_status petra_weights_read(const char *path, petra_weight *weights, int count);
