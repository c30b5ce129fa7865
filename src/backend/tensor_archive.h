/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in an archive, which may have several parts, each a file that can be read without the others. A tensor with
 * several references is stored once per part, and is shared again when it is read, across all parts that are read
 * together. Values are stored bit for bit in the logical order. A mask, whose content is private to the backend, is
 * stored as its bytes. */
#pragma once

#include "backend/backend.h"
#include "base/archive.h"

/* A tensor that was stored or read. */
typedef struct petra_known_tensor {
  petra_tensor *tensor; /* borrowed */
  int64_t identity;     /* the same in every part that contains it */
} petra_known_tensor;

typedef struct petra_tensor_archive {
  petra_archive *archive; /* the current part */
  petra_backend *backend;
  /* The accounts under which tensors may be counted; they outlive the tensors. A NULL entry means that the account
   * is elsewhere. Borrowed. */
  petra_account *const *accounts;
  int account_count;
  petra_account *own;        /* for tensors of the current part whose account is elsewhere */
  petra_known_tensor *known; /* tensors of all parts, in the order in which they were stored */
  int64_t count, capacity;
  int64_t first;  /* number of those in the current part */
  int32_t part;   /* number of the part; no two parts of a checkpoint have the same */
  int64_t read;   /* microbatches of the run that stage 1 has read; microbatches in flight have smaller numbers */
  int32_t images; /* samples of a microbatch, once a tensor has defined it; 0 until then */
  bool fused;     /* the last stage's F and B are one action */
} petra_tensor_archive;

/* Specifies what a place may hold when it is read. */
typedef enum petra_presence { PETRA_ABSENT, PETRA_PRESENT, PETRA_OPTIONAL } petra_presence;

typedef struct petra_tensor_form {
  petra_presence presence;
  petra_tensor_kind kind;
  int32_t shape[4]; /* shape[0] = 0: the samples of a microbatch, the same number for all */
} petra_tensor_form;

void petra_tensor_archive_fini(petra_tensor_archive *tensors);

/* Continues with another part. */
void petra_tensor_archive_part(petra_tensor_archive *tensors, petra_archive *archive, int32_t part, petra_account *own);

/* Reads or writes the content of an existing tensor, with the given rank and shape in the file. */
petra_status petra_tensor_archive_content(petra_tensor_archive *tensors, const char *name, petra_tensor *tensor,
                                          int rank, const int32_t *shape);

/* Reads or writes references, each of which may be NULL. Reading makes the tensors under their former account and
 * category; *references must be NULL before. */
petra_status petra_tensor_archive_references(petra_tensor_archive *tensors, const char *name,
                                             petra_tensor **const *references, int count);

/* When reading: returns PETRA_DATA unless each reference has its form. `name` is the name of the references. */
petra_status petra_tensor_archive_check(petra_tensor_archive *tensors, const char *name,
                                        petra_tensor **const *references, const petra_tensor_form *forms, int count);

/* Returns the form of an existing tensor. */
petra_tensor_form petra_tensor_form_of(const petra_tensor *tensor);
