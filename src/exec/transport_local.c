#include "exec/transport_local.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/mailbox.h"
#include "stage/archive.h"

#include <stdio.h>

typedef struct boxes {
  petra_mailbox channel[PETRA_CHANNELS];
} boxes;

typedef struct transport_local {
  petra_transport base;
  petra_stages stages;
  boxes *at; /* per stage */
} transport_local;

static const char *const names[] = {
#define NAME(name, text) text,
    PETRA_CHANNEL_LIST(NAME)
#undef NAME
};

/* NULL, logged, for a stage that is not here. */
static petra_mailbox *box_of(transport_local *t, const petra_address *address) {
  if (petra_stages_has(&t->stages, address->stage))
    return &t->at[address->stage - 1].channel[address->channel];
  petra_fail(PETRA_INTERNAL, "a message for stage %d, which is not in this process", address->stage);
  return NULL;
}

static petra_status post(petra_transport *base, const petra_address *to, petra_message *message) {
  transport_local *t = (transport_local *)base;
  petra_mailbox *box = box_of(t, to);
  if (!box) {
    petra_message_release(message);
    return PETRA_INTERNAL;
  }
  petra_account *account = petra_stage_account(petra_stages_get(&t->stages, to->stage));
  petra_streams_charge(&message->streams, account, PETRA_MEMORY_MESSAGES);
  petra_streams_charge(&message->gradients, account, PETRA_MEMORY_MESSAGES);
  return petra_mailbox_put(box, to->number, message);
}

static petra_status take(petra_transport *base, const petra_address *at, petra_message *out) {
  petra_mailbox *box = box_of((transport_local *)base, at);
  return box ? petra_mailbox_take(box, at->number, out) : PETRA_INTERNAL;
}

static petra_status archive_box(const petra_stage *stage, petra_tensor_archive *tensors, const char *name, bool forward,
                                petra_mailbox *box) {
  int64_t count = box->count;
  char item[96];
  snprintf(item, sizeof item, "%s-count", name);
  PETRA_TRY(petra_archive_integers(tensors->archive, item, &count, 1));
  PETRA_TRY(petra_archive_within(tensors->archive, item, "messages", count, 0, tensors->read));
  for (int64_t i = 0; i < count; i++) {
    petra_mail mail = {0};
    if (!tensors->archive->reading)
      mail = box->mail[i];
    snprintf(item, sizeof item, "%s-%lld-microbatch", name, (long long)i);
    PETRA_TRY(petra_archive_integers(tensors->archive, item, &mail.microbatch, 1));
    PETRA_TRY(petra_archive_within(tensors->archive, item, "microbatch", mail.microbatch, 0, tensors->read - 1));
    for (int64_t k = 0; k < i; k++)
      if (box->mail[k].microbatch == mail.microbatch)
        return petra_archive_refuse(tensors->archive, item, "microbatch %lld is there twice",
                                    (long long)mail.microbatch);
    snprintf(item, sizeof item, "%s-%lld", name, (long long)i);
    petra_status status = petra_message_archive(stage, tensors, item, forward, &mail.message);
    if (tensors->archive->reading && status == PETRA_OK)
      status = petra_mailbox_put(box, mail.microbatch, &mail.message);
    else if (tensors->archive->reading)
      petra_message_release(&mail.message);
    PETRA_TRY(status);
  }
  return PETRA_OK;
}

/* Those of evaluations are taken within the action that they are for, and are in no checkpoint. */
static petra_status archive(petra_transport *base, petra_tensor_archive *tensors) {
  transport_local *t = (transport_local *)base;
  for (int32_t j = 1; j <= t->stages.count; j++)
    for (int c = 0; petra_stages_has(&t->stages, j) && c <= PETRA_CHANNEL_BACKWARD; c++) {
      char name[40];
      snprintf(name, sizeof name, "messages/%s-%02d", names[c], j);
      PETRA_TRY(archive_box(petra_stages_get(&t->stages, j), tensors, name, c == PETRA_CHANNEL_FORWARD,
                            &t->at[j - 1].channel[c]));
    }
  return PETRA_OK;
}

static void destroy(petra_transport *base) {
  transport_local *t = (transport_local *)base;
  for (int32_t j = 0; t->at && j < t->stages.count; j++)
    for (int c = 0; c < PETRA_CHANNELS; c++)
      petra_mailbox_fini(&t->at[j].channel[c]);
  petra_free(t->at);
  petra_free(t);
}

petra_status petra_transport_local_create(const petra_stages *stages, petra_transport **out) {
  static const petra_transport_ops ops = {.post = post, .take = take, .archive = archive, .destroy = destroy};
  transport_local *t;
  PETRA_TRY(petra_allocate(&t, 1, sizeof *t));
  t->base.ops = &ops;
  t->stages = *stages;
  petra_status status = petra_allocate(&t->at, (size_t)stages->count, sizeof *t->at);
  if (status != PETRA_OK)
    destroy(&t->base);
  else
    *out = &t->base;
  return status;
}
