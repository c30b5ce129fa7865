/* SPDX-License-Identifier: Apache-2.0 */
/* The complete state of a stage in a checkpoint: weights and statistics as /parameters/SS/NAME, and, in a separate
 * group, momentum, gradients counted so far, older weights, the records of microbatches in flight, and the peaks of its
 * account. */
#pragma once

#include "backend/tensor_archive.h"
#include "stage/stage.h"

/* Reads or writes a stage. When reading, the stage must be new and have the same options. Errors: PETRA_DATA if the
 * parts are inconsistent: counts, versions and their holders, the tensors that the rule keeps of a microbatch, kinds
 * and shapes. */
petra_status petra_stage_archive(petra_stage *stage, petra_tensor_archive *tensors);

/* Gets the forms of the tensors of a message to `stage` from below (forward) or above: streams, then gradients.
 * `exact`: a message of an evaluation, which is never quantised. */
void petra_message_forms(const petra_stage *stage, bool forward, bool exact, petra_tensor_form forms[4]);

/* Reads or writes a message that waits for `stage`, from below (forward) or above. */
petra_status petra_message_archive(const petra_stage *stage, petra_tensor_archive *tensors, const char *name,
                                   bool forward, petra_message *message);

/* Gets the forms of `streams` streams of this shape. */
void petra_streams_forms(int streams, const petra_stream_shape *shape, petra_presence presence,
                         petra_tensor_form forms[2]);

/* Reads or writes one integer. When reading, checks low <= *value <= high; `what` names the value within the item. */
petra_status petra_archive_integer(petra_archive *archive, const char *name, const char *what, int64_t *value,
                                   int64_t low, int64_t high);

/* Reads or writes `count` labels, each below `classes`; reading allocates *labels. */
petra_status petra_labels_archive(petra_archive *archive, const char *name, int32_t classes, int64_t count,
                                  int32_t **labels);

/* Reads or writes a tensor set with the shapes of a block's parameters. */
petra_status petra_block_set_archive(petra_tensor_archive *tensors, const char *name, const petra_model *model,
                                     const petra_block *block, petra_tensor_set *set);

/* Reads or writes the peaks of an account. */
petra_status petra_account_archive(petra_archive *archive, petra_account *account);

/* Reads or writes a snapshot, which may be NULL; reading creates it. */
petra_status petra_snapshot_archive(petra_stage *stage, petra_tensor_archive *tensors, const char *name,
                                    petra_snapshot **snapshot);
