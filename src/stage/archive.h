/* All that a stage holds, in a checkpoint: weights and statistics as /parameters/SS/NAME, and under a group of its
 * own momentum, gradients counted so far, older weights, what is kept of microbatches in flight, the peaks of its
 * account. */
#ifndef PETRA_STAGE_ARCHIVE_H
#define PETRA_STAGE_ARCHIVE_H

#include "backend/tensor_archive.h"
#include "stage/stage.h"

/* A stage that is read into must be new, and of the same options. */
petra_status petra_stage_archive(petra_stage *stage, petra_tensor_archive *tensors);

/* The messages of a mailbox, the streams of a microbatch. */
petra_status petra_message_archive(petra_tensor_archive *tensors, const char *name, petra_message *message);

/* A snapshot, which may be NULL; reading makes it. */
petra_status petra_snapshot_archive(petra_stage *stage, petra_tensor_archive *tensors, const char *name,
                                    petra_snapshot **snapshot);

#endif
