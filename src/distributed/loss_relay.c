/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution_private.h"

#include "base/mem.h"
#include "exec/stage_observer.h"

#include <string.h>

typedef enum item_kind { ITEM_LOSS, ITEM_EVALUATION, ITEM_MARK } item_kind;

typedef struct item {
  int32_t kind;
  int64_t microbatch, virtual_ns;
  double lr;
  petra_loss loss;
  petra_evaluation evaluation;
} item;

/* The source of the items of a replica, and the observers to notify here. */
typedef struct source {
  petra_channel *channel; /* NULL: nothing comes from another process */
  int64_t marks;          /* marks received, minus the marks that were waited for */
  petra_stage_observer *observers;
} source;

struct petra_loss_relay {
  petra_stage_observer base;
  petra_replica_losses *losses; /* NULL: this is not rank 0, or there are no replicas */
  int ranks, replicas;
  petra_channel **out; /* to each rank; NULL: none */
  int64_t sent;        /* items */
  source source[];     /* of each replica */
};

/* Sends to rank 0 or, with `all`, to every rank to which this rank has a channel. */
static petra_status send_item(petra_loss_relay *relay, bool all, const item *what) {
  for (int r = 0; r < (all ? relay->ranks : 1); r++) {
    void *buffer;
    if (!relay->out[r])
      continue;
    PETRA_TRY(petra_channel_buffer(relay->out[r], 0, "room for a loss or an evaluation", &buffer));
    memcpy(buffer, what, sizeof *what);
    PETRA_TRY(petra_channel_send(relay->out[r], relay->sent, sizeof *what));
  }
  relay->sent++;
  return PETRA_OK;
}

/* --- from the worker of this process, whose list continues with the observers here --- */

static petra_status on_loss(petra_stage_observer *base, int64_t microbatch, const petra_loss *loss, double lr,
                            int64_t virtual_ns) {
  petra_loss_relay *relay = (petra_loss_relay *)base;
  const item what = {.kind = ITEM_LOSS, .microbatch = microbatch, .virtual_ns = virtual_ns, .lr = lr, .loss = *loss};
  return send_item(relay, false, &what);
}

static petra_status on_evaluation(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation) {
  petra_loss_relay *relay = (petra_loss_relay *)base;
  const item what = {.kind = ITEM_EVALUATION, .microbatch = microbatch, .evaluation = *evaluation};
  return send_item(relay, true, &what);
}

/* --- from other processes --- */

static petra_status receive(source *from, int64_t number, const void *data) {
  item what;
  memcpy(&what, data, sizeof what);
  PETRA_TRY(petra_channel_done(from->channel, number));
  if (what.kind == ITEM_LOSS)
    PETRA_NOTIFY(petra_stage_observer, from->observers, loss, observer, what.microbatch, &what.loss, what.lr,
                 what.virtual_ns);
  else if (what.kind == ITEM_EVALUATION)
    PETRA_NOTIFY(petra_stage_observer, from->observers, evaluated, observer, what.microbatch, &what.evaluation);
  else
    from->marks++;
  return PETRA_OK;
}

petra_status petra_loss_relay_poll(petra_loss_relay *relay) {
  int64_t number;
  const void *data;
  size_t size;
  for (int i = 0; i < relay->replicas; i++)
    for (source *from = &relay->source[i]; from->channel;) {
      PETRA_TRY(petra_channel_poll(from->channel, &number, &data, &size));
      if (!data)
        break;
      PETRA_TRY(receive(from, number, data));
    }
  return PETRA_OK;
}

petra_status petra_execution_drain(petra_execution *e) {
  petra_loss_relay *relay = e->relay;
  int64_t number;
  const void *data;
  size_t size;
  PETRA_TRY(send_item(relay, true, &(const item){.kind = ITEM_MARK}));
  for (int i = 0; i < relay->replicas; i++) {
    source *from = &relay->source[i];
    /* The mark may have arrived before this call. */
    for (from->marks -= from->channel != NULL; from->marks < 0;) {
      PETRA_TRY(petra_channel_next(from->channel, "the losses of the last stage", &number, &data, &size));
      PETRA_TRY(receive(from, number, data));
    }
  }
  return PETRA_OK;
}

/* --- creation --- */

/* Opens the channels of one replica, whose last stage is on rank `last`. */
static petra_status open_channels(petra_loss_relay *relay, petra_progress_thread *progress, int own, int replica,
                                  int last, int to, int channel) {
  for (int r = 0; r < to; r++)
    if (r != last && r == own)
      PETRA_TRY(petra_channel_open_in(progress, last, channel, sizeof(item), &relay->source[replica].channel));
    else if (r != last && last == own)
      PETRA_TRY(petra_channel_open_out(progress, r, channel, sizeof(item), &relay->out[r]));
  return PETRA_OK;
}

petra_status petra_execution_relay(petra_execution *e, petra_stage_observer *observers, bool keeps_best,
                                   petra_stage_observer **list) {
  static const petra_stage_observer_ops ops = {.loss = on_loss, .evaluated = on_evaluation};
  const petra_placement *placement = e->placement;
  const petra_ranks *ranks = e->ranks;
  const int replicas = placement->replicas, channel = petra_channel_id(e->plan->stages, PETRA_CHANNEL_LOSSES);
  petra_loss_relay *relay;
  PETRA_TRY(petra_allocate(&relay, 1, sizeof *relay + (size_t)replicas * sizeof *relay->source));
  e->relay = relay; /* which destroys it, also on failure */
  relay->base.ops = &ops;
  relay->ranks = ranks->count;
  relay->replicas = replicas;
  PETRA_TRY(petra_allocate(&relay->out, (size_t)ranks->count, sizeof(petra_channel *)));
  if (ranks->rank == 0 && replicas > 1)
    PETRA_TRY(petra_replica_losses_create(replicas, observers, &relay->losses));
  for (int i = 0; i < replicas; i++) {
    const int last = petra_placement_rank(placement, i, e->plan->stages),
              to = keeps_best && i == 0 ? placement->replica_ranks : 1;
    relay->source[i].observers = relay->losses ? petra_replica_losses_of(relay->losses, i) : observers;
    PETRA_TRY(open_channels(relay, ranks->progress, ranks->rank, i, last, to, channel));
  }
  PETRA_OBSERVERS_ADD(petra_stage_observer, list, &relay->base);
  relay->base.next = relay->source[placement->replica].observers;
  return PETRA_OK;
}

void petra_loss_relay_destroy(petra_loss_relay *relay) {
  if (!relay)
    return;
  petra_replica_losses_destroy(relay->losses);
  PETRA_FREE_ALL(relay->out, relay);
}
