/* SPDX-License-Identifier: Apache-2.0 */
/* What `petra data verify` finds of a split, by kind of samples. */
#ifndef PETRA_CLI_DATA_VERIFY_H
#define PETRA_CLI_DATA_VERIFY_H

#include "cli/data.h"

struct json_t;

typedef struct petra_split_report {
  petra_dataset *set; /* NULL: it could not be opened */
  bool there;         /* the set has the split */
  int64_t problems;
  int64_t labels;       /* images, or tokens, that could be read */
  int64_t *class_count; /* how many have each label, or are each token */
  void *more;           /* of the kind */
} petra_split_report;

typedef struct petra_verification {
  size_t more_bytes;
  /* Reads all of the open split; each problem is logged and counted. */
  petra_status (*examine)(petra_split_report *report, const petra_config *config);
  /* The lines of an open split, from behind its name on. */
  void (*print)(const petra_split_report *report);
  void (*add_json)(const petra_split_report *report, struct json_t **object);
} petra_verification;

extern const petra_verification petra_verification_images, petra_verification_tokens;

#endif
