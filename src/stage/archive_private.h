/* SPDX-License-Identifier: Apache-2.0 */
/* What reading a stage from a checkpoint compares with. Private to src/stage. */
#ifndef PETRA_STAGE_ARCHIVE_PRIVATE_H
#define PETRA_STAGE_ARCHIVE_PRIVATE_H

#include "stage/archive.h"
#include "stage/stage_private.h"

/* Of a block in a record: two input streams and the graph. */
enum { PETRA_RECORD_TENSORS = PETRA_GRAPH_TENSORS + 2 };
void petra_record_places(petra_record *record, int b, petra_tensor **places[PETRA_RECORD_TENSORS]);

/* What a record of the stage holds. */
typedef struct petra_record_forms {
  petra_tensor_form (*block)[PETRA_RECORD_TENSORS]; /* per block; owned */
  int32_t labels;                                   /* of one sample */
  bool holds;                                       /* the version that its F read */
} petra_record_forms;

/* Of a record after its F, or after its B where `backward`; `fused`: F and B are one action. */
petra_status petra_stage_forms(const petra_stage *stage, bool backward, bool fused, petra_record_forms *out);

/* That the versions and who holds them go together. */
petra_status petra_stage_check_held(const petra_stage *stage, const petra_archive *archive);

#endif
