/* SPDX-License-Identifier: Apache-2.0 */
#include "execute/loss_relay.h"

#include <string.h>

typedef enum item_kind { ITEM_LOSS, ITEM_EVALUATION, ITEM_MARK } item_kind;

typedef struct item {
  int32_t kind;
  int64_t microbatch, virtual_ns;
  double lr;
  petra_loss loss;
  petra_evaluation evaluation;
} item;

petra_status petra_news_init(petra_news *news, petra_ranks *ranks, int last, int id) {
  *news = (petra_news){.rank = ranks->rank};
  if (last == 0 || (ranks->rank != 0 && ranks->rank != last))
    return PETRA_OK;
  return ranks->rank == 0 ? petra_carrier_way_in(ranks->carrier, last, id, sizeof(item), &news->way)
                          : petra_carrier_way_out(ranks->carrier, 0, id, sizeof(item), &news->way);
}

static petra_status send_item(petra_news *news, const item *what) {
  void *buffer;
  PETRA_TRY(petra_way_buffer(news->way, 0, "room for what rank 0 is told", &buffer));
  memcpy(buffer, what, sizeof *what);
  return petra_way_send(news->way, news->told++, sizeof *what);
}

static petra_status on_loss(petra_stage_observer *base, int64_t microbatch, const petra_loss *loss, double lr,
                            int64_t virtual_ns) {
  const item what = {.kind = ITEM_LOSS, .microbatch = microbatch, .virtual_ns = virtual_ns, .lr = lr, .loss = *loss};
  return send_item((petra_news *)base, &what);
}

static petra_status on_evaluation(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation) {
  const item what = {.kind = ITEM_EVALUATION, .microbatch = microbatch, .evaluation = *evaluation};
  return send_item((petra_news *)base, &what);
}

/* Of rank 0 itself, which has begun its part of an evaluation. */
static petra_status on_evaluating(petra_stage_observer *base) {
  const petra_news *news = (const petra_news *)base;
  return news->log->ops->evaluating ? news->log->ops->evaluating(news->log) : PETRA_OK;
}

petra_stage_observer *petra_news_observer(petra_news *news, petra_stage_observer *log) {
  static const petra_stage_observer_ops ops = {.loss = on_loss, .evaluated = on_evaluation};
  static const petra_stage_observer_ops first = {.evaluating = on_evaluating};
  static const petra_stage_observer_ops silent = {0};
  news->log = log;
  news->base.ops = !news->way ? &silent : news->rank > 0 ? &ops : &first;
  return news->rank == 0 && !news->way ? log : &news->base;
}

static petra_status hear(petra_news *news, const void *data) {
  item what;
  memcpy(&what, data, sizeof what);
  PETRA_TRY(petra_way_done(news->way, news->told++));
  switch ((item_kind)what.kind) {
  case ITEM_LOSS:
    return news->log->ops->loss(news->log, what.microbatch, &what.loss, what.lr, what.virtual_ns);
  case ITEM_EVALUATION:
    return news->log->ops->evaluated(news->log, what.microbatch, &what.evaluation);
  case ITEM_MARK:
    news->settled++;
    break;
  }
  return PETRA_OK;
}

petra_status petra_news_hear(petra_news *news) {
  int64_t number;
  const void *data;
  size_t size;
  if (!news->way || news->rank > 0)
    return PETRA_OK;
  for (;;) {
    PETRA_TRY(petra_way_poll(news->way, &number, &data, &size));
    if (!data)
      return PETRA_OK;
    PETRA_TRY(hear(news, data));
  }
}

petra_status petra_news_settle(petra_news *news) {
  const void *data;
  size_t size;
  if (!news->way)
    return PETRA_OK;
  if (news->rank > 0)
    return send_item(news, &(const item){.kind = ITEM_MARK});
  for (news->settled--; news->settled < 0;) { /* it may have come before this rank is there */
    PETRA_TRY(petra_way_take(news->way, news->told, "the losses of the last stage", &data, &size));
    PETRA_TRY(hear(news, data));
  }
  return PETRA_OK;
}
