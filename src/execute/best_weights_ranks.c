/* SPDX-License-Identifier: Apache-2.0 */
#include "execute/best_weights_ranks.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* The weights of the stages that are here, at an evaluation. */
typedef struct copy {
  struct copy *next;
  petra_weights_moment moment; /* where the last stage is elsewhere without its value, until that is told */
  double *values;
  int64_t count;
} copy;

struct petra_best_ranks {
  petra_stage_observer base;
  const petra_network *network;
  petra_ranks *ranks;
  petra_best *best;            /* of rank 0 */
  petra_weights_moment moment; /* of the best evaluation so far; epoch 0: none */
  copy *kept;                  /* its weights; NULL: they are in a file, or there are none */
  bool changed;                /* since the file was written */
  copy *first, **last;         /* evaluations whose value is not known here, in their order */
  petra_way *in, **out;        /* from the rank of the last stage; at that rank to each rank, NULL: none */
  int64_t told;                /* moments sent, or heard */
};

static const char awaited[] = "the result of an evaluation";

static void destroy_copy(copy *c) {
  if (c)
    petra_free(c->values);
  petra_free(c);
}

/* The first evaluation that waits turned out so. */
static petra_status decide(petra_best_ranks *b, const petra_weights_moment *moment) {
  copy *c = b->first;
  if (!c || c->moment.epoch != moment->epoch)
    return petra_fail(PETRA_INTERNAL, "the evaluation of epoch %d is told, and %s waits here", moment->epoch,
                      c ? "another one" : "none");
  b->first = c->next;
  if (!b->first)
    b->last = &b->first;
  if (!petra_best_beats(moment, &b->moment)) {
    destroy_copy(c);
    return PETRA_OK;
  }
  destroy_copy(b->kept);
  b->kept = c;
  b->moment = *moment;
  b->changed = true;
  return PETRA_OK;
}

static petra_status tell(petra_best_ranks *b, const petra_weights_moment *moment) {
  for (int r = 0; r < b->ranks->count; r++) {
    void *buffer;
    if (!b->out[r])
      continue;
    PETRA_TRY(petra_way_buffer(b->out[r], 0, "room for the result of an evaluation", &buffer));
    memcpy(buffer, moment, sizeof *moment);
    PETRA_TRY(petra_way_send(b->out[r], b->told, sizeof *moment));
  }
  b->told++;
  return PETRA_OK;
}

static petra_status on_weights(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation,
                               petra_snapshot *const *snapshots) {
  petra_best_ranks *b = (petra_best_ranks *)base;
  copy *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  *b->last = c;
  b->last = &c->next;
  c->moment = petra_best_moment_of(b->network->plan, microbatch, evaluation);
  PETRA_TRY(petra_network_copy_weights(b->network, snapshots, &c->values, &c->count));
  if (!evaluation)
    return PETRA_OK;
  const petra_weights_moment moment = c->moment;
  PETRA_TRY(tell(b, &moment));
  return decide(b, &moment);
}

/* With `wait` of all evaluations that were passed on. */
static petra_status hear(petra_best_ranks *b, bool wait) {
  while (b->first && b->in) {
    petra_weights_moment moment;
    const void *data;
    size_t size;
    int64_t number;
    PETRA_TRY(wait ? petra_way_take(b->in, b->told, awaited, &data, &size)
                   : petra_way_poll(b->in, &number, &data, &size));
    if (!data)
      return PETRA_OK;
    memcpy(&moment, data, sizeof moment);
    PETRA_TRY(petra_way_done(b->in, b->told++));
    PETRA_TRY(decide(b, &moment));
  }
  return PETRA_OK;
}

petra_status petra_best_ranks_hear(petra_best_ranks *b) {
  return hear(b, false);
}

petra_status petra_best_ranks_resume(petra_best_ranks *b) {
  if (b->best)
    b->moment = petra_best_moment(b->best);
  return petra_ranks_share(b->ranks, &b->moment, sizeof b->moment);
}

petra_status petra_best_ranks_save(petra_best_ranks *b) {
  PETRA_TRY(hear(b, true));
  bool changed = b->changed;
  PETRA_TRY(petra_ranks_share(b->ranks, &changed, sizeof changed)); /* other replicas do not know */
  if (!changed)
    return PETRA_OK;
  PETRA_TRY(petra_network_write_copies(b->network, b->kept ? b->kept->values : NULL, b->kept ? b->kept->count : 0,
                                       &b->moment, b->best ? petra_best_path(b->best) : NULL));
  if (b->best)
    petra_best_written(b->best, &b->moment);
  b->changed = false;
  return PETRA_OK;
}

/* --- creation --- */

static petra_status open_ways(petra_best_ranks *b, int way) {
  const petra_placement *placement = b->network->placement;
  const int last = placement->rank_of[b->network->plan->stages - 1];
  if (placement->replica > 0)
    return PETRA_OK;
  if (b->ranks->rank != last)
    return petra_carrier_way_in(b->ranks->carrier, last, way, sizeof(petra_weights_moment), &b->in);
  for (int r = 0; r < placement->places; r++)
    if (r != last)
      PETRA_TRY(petra_carrier_way_out(b->ranks->carrier, r, way, sizeof(petra_weights_moment), &b->out[r]));
  return PETRA_OK;
}

petra_status petra_best_ranks_create(const petra_network *network, petra_best *best, int way, petra_best_ranks **out) {
  static const petra_stage_observer_ops ops = {.evaluated_weights = on_weights};
  petra_best_ranks *b;
  petra_status status;
  PETRA_TRY(petra_allocate(&b, 1, sizeof *b));
  b->base.ops = &ops;
  b->network = network;
  b->ranks = network->placement->ranks;
  b->best = best;
  b->last = &b->first;
  PETRA_TRY_GOTO(status, petra_allocate(&b->out, (size_t)b->ranks->count, sizeof(petra_way *)), fail);
  PETRA_TRY_GOTO(status, open_ways(b, way), fail);
  *out = b;
  return PETRA_OK;
fail:
  petra_best_ranks_destroy(b);
  return status;
}

void petra_best_ranks_destroy(petra_best_ranks *b) {
  if (!b)
    return;
  while (b->first) {
    copy *c = b->first;
    b->first = c->next;
    destroy_copy(c);
  }
  destroy_copy(b->kept);
  petra_free(b->out);
  petra_free(b);
}

petra_stage_observer *petra_best_ranks_observer(petra_best_ranks *b) {
  return &b->base;
}
