/* Tensors in an archive. A tensor that several hold is stored once, and shared again when it is read. Values are
 * stored as they are, bit for bit, in the logical order; a mask, whose content is the backend's own, as its bytes. */
#ifndef PETRA_BACKEND_TENSOR_ARCHIVE_H
#define PETRA_BACKEND_TENSOR_ARCHIVE_H

#include "backend/backend.h"
#include "base/archive.h"

typedef struct petra_tensor_archive {
  petra_archive *archive;
  petra_backend *backend;
  petra_account *const *accounts; /* that tensors may count under; borrowed */
  int account_count;
  petra_tensor **known; /* in the order in which they were stored; borrowed */
  int64_t count, capacity;
} petra_tensor_archive;

void petra_tensor_archive_fini(petra_tensor_archive *tensors);

/* The content of a tensor that exists, with the given rank and shape in the file. */
petra_status petra_tensor_archive_content(petra_tensor_archive *tensors, const char *name, petra_tensor *tensor,
                                          int rank, const int32_t *shape);

/* References, each of which may be NULL: reading makes the tensors, under the account and category that they had.
 * What is in *references before reading must be NULL. */
petra_status petra_tensor_archive_references(petra_tensor_archive *tensors, const char *name,
                                             petra_tensor **const *references, int count);

#endif
