/* An evaluation: a data set goes batch by batch through the stages, each with a snapshot of its weights. */
#ifndef PETRA_EXEC_EVALUATE_H
#define PETRA_EXEC_EVALUATE_H

#include "data/loader.h"
#include "exec/stages.h"
#include "exec/transport.h"

/* Over a whole data set. */
typedef struct petra_evaluation {
  int64_t images;
  double loss;       /* mean over the images */
  double top1, top5; /* fractions */
} petra_evaluation;

/* Passes every batch through the stages that are here, with `snapshots` (one a stage, NULL where it is elsewhere). What
 * comes from a stage that is elsewhere, or goes to one, goes by the transport (channel EVALUATION), which may be NULL where
 * all stages are here. The partial last batch counts by its images. *out is set where the last stage is
 * here, else left alone. PETRA_NOT_FINITE for a loss that is not finite. */
petra_status petra_evaluate(petra_backend *backend, const petra_stages *stages, petra_snapshot *const *snapshots,
                            petra_transport *transport, const petra_dataset *set, const petra_loader_options *options,
                            petra_evaluation *out);

#endif
