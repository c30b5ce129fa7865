/* An evaluation: a data set goes batch by batch through the stages, each with a snapshot of its weights. */
#ifndef PETRA_EXEC_EVALUATE_H
#define PETRA_EXEC_EVALUATE_H

#include "base/crew.h"
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
 * all stages are here. With a crew of as many threads as the backend has lanes (NULL: none) as many batches are computed at
 * once where all stages are here; the result is the same. The partial last batch counts by its images. *out is set where the
 * last stage is here, else left alone. PETRA_NOT_FINITE for a loss that is not finite. */
petra_status petra_evaluate(petra_backend *backend, const petra_stages *stages, petra_snapshot *const *snapshots,
                            petra_transport *transport, const petra_dataset *set, const petra_loader_options *options,
                            petra_crew *crew, petra_evaluation *out);

/* The same batch by batch, for a process that does other things in between; every process has to go through all batches. */
typedef struct petra_evaluator petra_evaluator;

/* As petra_evaluate; what it is given is borrowed. */
petra_status petra_evaluator_create(petra_backend *backend, const petra_stages *stages,
                                    petra_snapshot *const *snapshots, petra_transport *transport,
                                    const petra_dataset *set, const petra_loader_options *options, petra_crew *crew,
                                    petra_evaluator **out);
void petra_evaluator_destroy(petra_evaluator *evaluator); /* NULL is allowed */

/* The next batch, of which there is one unless it ended; with a crew the next ones. */
petra_status petra_evaluator_step(petra_evaluator *evaluator);
bool petra_evaluator_ended(const petra_evaluator *evaluator);

/* Once it ended: as petra_evaluate. */
petra_status petra_evaluator_result(const petra_evaluator *evaluator, petra_evaluation *out);

#endif
