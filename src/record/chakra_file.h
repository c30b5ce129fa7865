/* SPDX-License-Identifier: Apache-2.0 */
/* The files of an execution trace of MLCommons Chakra: DIR/petra.N.et for device N from 0. A file is a sequence of
 * protobuf messages (chakra.proto), each after its length as a varint: first the metadata, then the nodes. The files
 * appear under their names when all of them are complete. A build without protobuf-c cannot write them. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { PETRA_CHAKRA_AFTER_MAX = 4, PETRA_CHAKRA_NAME_MAX = 64 };

typedef enum petra_chakra_kind { PETRA_CHAKRA_COMPUTE, PETRA_CHAKRA_SEND, PETRA_CHAKRA_RECEIVE } petra_chakra_kind;

typedef struct petra_chakra_node {
  petra_chakra_kind kind;
  int64_t id; /* unique in its file */
  char name[PETRA_CHAKRA_NAME_MAX];
  int after_count;
  int64_t after[PETRA_CHAKRA_AFTER_MAX]; /* nodes of the same file that end before this one starts */
  int64_t duration_us;                   /* of a compute node */
  int32_t from, to, tag;                 /* of a message: its devices, from 0 */
  int64_t bytes;                         /* of a message */
} petra_chakra_node;

typedef struct petra_chakra_files petra_chakra_files;

/* Makes the folder if it does not exist, and checks that the files can be written. Without `overwrite`, files
 * DIR/petra.N.et are an error. Errors: PETRA_USAGE, PETRA_IO, PETRA_NO_MEMORY; in a build without protobuf-c
 * PETRA_USAGE. */
petra_status petra_chakra_files_create(const char *directory, int32_t devices, const char *method, bool overwrite,
                                       petra_chakra_files **out);

/* Adds a node to the file of a device (from 0). Errors: PETRA_IO. */
petra_status petra_chakra_files_add(petra_chakra_files *files, int32_t device, const petra_chakra_node *node);

/* Completes and renames the files, and removes files of more devices that an earlier command left. */
petra_status petra_chakra_files_finish(petra_chakra_files *files);

/* Discards the files if they were not finished; those of an earlier command are then as before. NULL is allowed. */
void petra_chakra_files_destroy(petra_chakra_files *files);

/* The library's name and version; NULL: the build has none. */
const char *petra_chakra_library(void);
