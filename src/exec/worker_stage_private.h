/* The inside of the worker that runs stages, shared by worker_stage.c and worker_archive.c. */
#ifndef PETRA_EXEC_WORKER_STAGE_PRIVATE_H
#define PETRA_EXEC_WORKER_STAGE_PRIVATE_H

#include "exec/feed.h"
#include "exec/worker_stage.h"

/* An evaluation that waits until every stage of the network has reached it. */
typedef struct petra_pending {
  int64_t microbatch;
  int32_t reached;
  petra_snapshot **snapshots; /* per stage; NULL: elsewhere, or not there yet */
  struct petra_pending *next;
} petra_pending;

/* A loss that was not told yet; images 0: none. It is told with the next one, so that the host prepares a microbatch
 * while the device computes another. */
typedef struct petra_late_loss {
  petra_loss loss;
  int64_t microbatch, virtual_ns;
} petra_late_loss;

typedef struct petra_worker_stage {
  petra_worker base;
  petra_worker_stage_options options;
  petra_feed feed;
  petra_pending *evaluations;
  petra_late_loss late, new_late; /* the last loss, where the device may still be at it; that of the present action */
} petra_worker_stage;

/* The place of the evaluation at a microbatch, made where it is missing. */
petra_status petra_worker_find_pending(petra_worker_stage *worker, int64_t microbatch, petra_pending ***out);

#endif
