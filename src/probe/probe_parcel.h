/* SPDX-License-Identifier: Apache-2.0 */
/* What the rank of a stage tells the rank that computes the references of a probe, as bytes: a head and packed tensors. */
#ifndef PETRA_PROBE_PROBE_PARCEL_H
#define PETRA_PROBE_PROBE_PARCEL_H

#include "nn/tensors.h"

typedef enum petra_parcel_kind {
  PETRA_PARCEL_READ,      /* stage 1 has read microbatch `number`: the images, and the labels */
  PETRA_PARCEL_INPUT,     /* the streams that the stage is about to do F of `number` on */
  PETRA_PARCEL_FORWARDED, /* it has done F of `number`, with the weights `version` */
  PETRA_PARCEL_FOUND,     /* its B of `number` gave these streams as the input of its F */
  PETRA_PARCEL_WEIGHTS,   /* the parameters of its block `block` in version `number` */
  PETRA_PARCEL_GRADIENTS /* the gradients of its block `block`, with which it is about to make the update at `number` */
} petra_parcel_kind;

/* The head. */
typedef struct petra_parcel {
  int64_t number, version;
  int32_t kind, stage; /* from 1 */
  int32_t block;       /* from 0, over the whole network */
  int32_t predicted;   /* 1: the weights are those that F of a stage that predicts reads */
  int32_t labels;      /* behind the tensors */
  int32_t count;       /* of tensors, none of which is NULL */
  struct {
    int32_t kind, shape[4];
  } tensor[PETRA_BLOCK_TENSORS];
} petra_parcel;

/* Puts the forms of the tensors that are there into the head. */
void petra_parcel_describe(petra_parcel *parcel, petra_tensor *const *tensors, int count);

/* Bytes of it all. */
size_t petra_parcel_bytes(const petra_parcel *parcel, const petra_backend *backend);

/* Writes head, the tensors that are there of `count`, labels. */
petra_status petra_parcel_pack(const petra_parcel *parcel, petra_tensor *const *tensors, int count,
                               const int32_t *labels, void *to);

/* Reads the head. PETRA_INTERNAL, logged, if `size` is not that of the whole. */
petra_status petra_parcel_open(petra_parcel *parcel, const petra_backend *backend, const void *data, size_t size);

/* Makes the tensors, one for each in the head; `out` holds NULL before, and on failure what was made. */
petra_status petra_parcel_tensors(const petra_parcel *parcel, const petra_compute *compute,
                                  petra_memory_category category, const void *data, petra_tensor **out);

/* In `data`. */
const int32_t *petra_parcel_labels(const petra_parcel *parcel, const petra_backend *backend, const void *data);

/* The largest parcel of blocks [first, end) and microbatches of `images` images; element_bytes[kind] are those of the
 * backend. */
size_t petra_parcel_max(const petra_model *model, int first, int end, int32_t samples, const size_t *element_bytes);

/* Where parcels go, in order: `room` gives a place for `bytes`, `send` sends them from there. */
typedef struct petra_parcel_outlet {
  void *context;
  petra_status (*room)(void *context, size_t bytes, void **buffer);
  petra_status (*send)(void *context, size_t bytes);
} petra_parcel_outlet;

/* Where they come from: the first of a rank that was not done with. Where there is none *data is NULL or, with `wait`, it is
 * waited for. */
typedef struct petra_parcel_inlet {
  void *context;
  petra_status (*peek)(void *context, int rank, bool wait, const void **data, size_t *size);
  petra_status (*done)(void *context, int rank);
} petra_parcel_inlet;

#endif
