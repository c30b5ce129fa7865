/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/stage_observer.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

typedef struct input {
  petra_stage_observer base;
  petra_replica_losses *losses;
  int replica;
  int64_t reported;
} input;

/* A microbatch that not all replicas have reported. */
typedef struct waiting {
  int64_t microbatch, virtual_ns;
  double lr;
  int reported;
} waiting;

/* An evaluation reported after a loss that waits. */
typedef struct late_evaluation {
  int64_t microbatch, after; /* the number of losses before it */
  petra_evaluation evaluation;
} late_evaluation;

struct petra_replica_losses {
  petra_stage_observer *observers;
  int replicas;
  int64_t first; /* losses reported to the observers so far */
  int64_t count; /* losses that wait */
  waiting *waiting;
  petra_loss *parts; /* of each loss that waits, by replica */
  int64_t waiting_capacity, parts_capacity;
  late_evaluation *late; /* in their order */
  int64_t late_count, late_capacity;
  input inputs[];
};

/* Notifies the observers of evaluations whose turn has come. */
static petra_status report_late(petra_replica_losses *l) {
  while (l->late_count > 0 && l->late[0].after <= l->first) {
    const late_evaluation one = l->late[0];
    l->late_count--;
    memmove(l->late, l->late + 1, (size_t)l->late_count * sizeof *l->late);
    PETRA_NOTIFY(petra_stage_observer, l->observers, evaluated, observer, one.microbatch, &one.evaluation);
  }
  return PETRA_OK;
}

/* Notifies the observers of the first loss that waits, which all replicas have reported. */
static petra_status report_first(petra_replica_losses *l) {
  const waiting first = l->waiting[0];
  petra_loss all = l->parts[0];
  for (int i = 1; i < l->replicas; i++) {
    all.loss += l->parts[i].loss;
    all.top1 += l->parts[i].top1;
    all.top5 += l->parts[i].top5;
    all.images += l->parts[i].images;
  }
  all.loss /= l->replicas;
  l->first++;
  l->count--;
  memmove(l->waiting, l->waiting + 1, (size_t)l->count * sizeof *l->waiting);
  memmove(l->parts, l->parts + l->replicas, (size_t)(l->count * l->replicas) * sizeof *l->parts);
  PETRA_NOTIFY(petra_stage_observer, l->observers, loss, observer, first.microbatch, &all, first.lr, first.virtual_ns);
  return report_late(l);
}

/* All replicas report in the same order. */
static petra_status on_loss(petra_stage_observer *base, int64_t microbatch, const petra_loss *loss, double lr,
                            int64_t virtual_ns) {
  input *from = (input *)base;
  petra_replica_losses *l = from->losses;
  const int64_t at = from->reported++ - l->first;
  if (at == l->count) {
    PETRA_TRY(petra_array_reserve(&l->waiting, &l->waiting_capacity, at + 1, sizeof *l->waiting));
    PETRA_TRY(petra_array_reserve(&l->parts, &l->parts_capacity, (at + 1) * l->replicas, sizeof *l->parts));
    l->waiting[l->count++] = (waiting){microbatch, virtual_ns, lr, 0};
  }
  waiting *one = &l->waiting[at];
  if (one->microbatch != microbatch)
    return petra_fail(PETRA_INTERNAL,
                      "replica %d reports the loss of microbatch %lld, but another replica that of %lld", from->replica,
                      (long long)microbatch, (long long)one->microbatch);
  l->parts[at * l->replicas + from->replica] = *loss;
  return ++one->reported == l->replicas ? report_first(l) : PETRA_OK;
}

static petra_status on_evaluation(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation) {
  const input *from = (const input *)base;
  petra_replica_losses *l = from->losses;
  PETRA_TRY(petra_array_reserve(&l->late, &l->late_capacity, l->late_count + 1, sizeof *l->late));
  l->late[l->late_count++] = (late_evaluation){microbatch, from->reported, *evaluation};
  return report_late(l);
}

static petra_status on_evaluating(petra_stage_observer *base) {
  const petra_replica_losses *l = ((const input *)base)->losses;
  PETRA_NOTIFY(petra_stage_observer, l->observers, evaluating, observer);
  return PETRA_OK;
}

/* Only replica 0 evaluates; all replicas have the same weights. */
static petra_status on_weights(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation,
                               petra_snapshot *const *snapshots) {
  const petra_replica_losses *l = ((const input *)base)->losses;
  PETRA_NOTIFY(petra_stage_observer, l->observers, evaluated_weights, observer, microbatch, evaluation, snapshots);
  return PETRA_OK;
}

petra_status petra_replica_losses_create(int replicas, petra_stage_observer *observers, petra_replica_losses **out) {
  static const petra_stage_observer_ops ops = {
      .loss = on_loss, .evaluating = on_evaluating, .evaluated = on_evaluation, .evaluated_weights = on_weights};
  petra_replica_losses *l;
  PETRA_TRY(petra_allocate(&l, 1, sizeof *l + (size_t)replicas * sizeof *l->inputs));
  l->observers = observers;
  l->replicas = replicas;
  for (int i = 0; i < replicas; i++)
    l->inputs[i] = (input){.base.ops = &ops, .losses = l, .replica = i};
  *out = l;
  return PETRA_OK;
}

void petra_replica_losses_destroy(petra_replica_losses *l) {
  if (!l)
    return;
  PETRA_FREE_ALL(l->waiting, l->parts, l->late, l);
}

petra_stage_observer *petra_replica_losses_of(petra_replica_losses *l, int replica) {
  return &l->inputs[replica].base;
}
