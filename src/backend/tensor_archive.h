/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in an archive, which may have several parts, each a file that can be read without the others. A tensor that
 * several hold is stored once a part, and shared again when it is read, across all parts that are read together. Values are
 * stored as they are, bit for bit, in the logical order; a mask, whose content is the backend's own, as its bytes. */
#ifndef PETRA_BACKEND_TENSOR_ARCHIVE_H
#define PETRA_BACKEND_TENSOR_ARCHIVE_H

#include "backend/backend.h"
#include "base/archive.h"

/* A tensor that was stored or read. */
typedef struct petra_known_tensor {
  petra_tensor *tensor; /* borrowed */
  int64_t identity;     /* the same in every part that has it */
} petra_known_tensor;

typedef struct petra_tensor_archive {
  petra_archive *archive; /* the present part */
  petra_backend *backend;
  petra_account *const
      *accounts; /* that tensors may count under, and that outlive their holders; NULL: elsewhere; borrowed */
  int account_count;
  petra_account *own;        /* of the present part: of tensors whose account is elsewhere */
  petra_known_tensor *known; /* of all parts, in the order in which they were stored */
  int64_t count, capacity;
  int64_t first;  /* of the present part among them */
  int32_t part;   /* its number; no two parts of a checkpoint have the same */
  int64_t read;   /* microbatches of the run that stage 1 has read: those in flight have smaller numbers */
  int32_t images; /* of a microbatch, once a tensor has told; 0 until then */
  bool fused;     /* the last stage's F and B are one action */
} petra_tensor_archive;

/* What a place may hold when it is read. */
typedef enum petra_presence { PETRA_ABSENT, PETRA_PRESENT, PETRA_OPTIONAL } petra_presence;

typedef struct petra_tensor_form {
  petra_presence presence;
  petra_tensor_kind kind;
  int32_t shape[4]; /* shape[0] = 0: the images of a microbatch, the same number for all */
} petra_tensor_form;

void petra_tensor_archive_fini(petra_tensor_archive *tensors);

/* Goes on with another part. */
void petra_tensor_archive_part(petra_tensor_archive *tensors, petra_archive *archive, int32_t part, petra_account *own);

/* The content of a tensor that exists, with the given rank and shape in the file. */
petra_status petra_tensor_archive_content(petra_tensor_archive *tensors, const char *name, petra_tensor *tensor,
                                          int rank, const int32_t *shape);

/* References, each of which may be NULL: reading makes the tensors, under the account and category that they had.
 * What is in *references before reading must be NULL. */
petra_status petra_tensor_archive_references(petra_tensor_archive *tensors, const char *name,
                                             petra_tensor **const *references, int count);

/* Where the archive is read: PETRA_DATA unless each reference has its form. `name` as of the references. */
petra_status petra_tensor_archive_check(petra_tensor_archive *tensors, const char *name,
                                        petra_tensor **const *references, const petra_tensor_form *forms, int count);

/* The form of a tensor that is there. */
petra_tensor_form petra_tensor_form_of(const petra_tensor *tensor);

#endif
