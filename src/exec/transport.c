/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/transport.h"

#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "group/progress_thread.h"
#include "stage/stage_archive.h"

#include <stdio.h>
#include <string.h>

/* --- within a process --- */

typedef struct mail {
  int64_t number;
  petra_message message;
} mail;

typedef struct mailbox {
  mail *mail; /* in the order of arrival */
  int64_t count, capacity;
} mailbox;

typedef struct transport_local {
  petra_transport base;
  petra_stages stages;
  mailbox at[][PETRA_MESSAGE_KINDS]; /* per stage */
} transport_local;

/* Returns NULL, logged, for a stage that is not here. */
static mailbox *box_of(transport_local *t, const petra_address *address) {
  if (petra_stages_has(&t->stages, address->stage))
    return &t->at[address->stage - 1][address->kind];
  petra_fail(PETRA_INTERNAL, "a message for stage %d, which is not in this process", address->stage);
  return NULL;
}

/* The mailbox takes over the message, also on failure. */
static petra_status put(mailbox *box, int64_t number, petra_message *message) {
  petra_status status = petra_array_reserve(&box->mail, &box->capacity, box->count + 1, sizeof *box->mail);
  if (status == PETRA_OK) {
    box->mail[box->count++] = (mail){number, *message};
    *message = (petra_message){0};
  }
  petra_message_release(message);
  return status;
}

static petra_status post(petra_transport *base, const petra_address *to, petra_message *message) {
  transport_local *t = (transport_local *)base;
  mailbox *box = box_of(t, to);
  if (!box) {
    petra_message_release(message);
    return PETRA_INTERNAL;
  }
  petra_account *account = petra_stage_account(petra_stages_get(&t->stages, to->stage));
  petra_streams_charge(&message->streams, account, PETRA_MEMORY_MESSAGES);
  petra_streams_charge(&message->gradients, account, PETRA_MEMORY_MESSAGES);
  return put(box, to->number, message);
}

/* Returns the index of the message in the mailbox; the number of messages if it is not there. */
static int64_t find(const mailbox *box, int64_t number) {
  int64_t i = 0;
  while (i < box->count && box->mail[i].number != number)
    i++;
  return i;
}

bool petra_transport_local_has(const petra_transport *base, const petra_address *at) {
  const mailbox *box = &((const transport_local *)base)->at[at->stage - 1][at->kind];
  return find(box, at->number) < box->count;
}

int64_t petra_transport_local_count(const petra_transport *base, int32_t stage, petra_message_kind kind) {
  return ((const transport_local *)base)->at[stage - 1][kind].count;
}

static petra_status take(petra_transport *base, const petra_address *at, petra_message *out) {
  mailbox *box = box_of((transport_local *)base, at);
  if (!box)
    return PETRA_INTERNAL;
  const int64_t i = find(box, at->number);
  if (i == box->count)
    return petra_fail(PETRA_INTERNAL, "the message of microbatch %lld is not there", (long long)at->number);
  *out = box->mail[i].message;
  box->count--;
  memmove(&box->mail[i], &box->mail[i + 1], (size_t)(box->count - i) * sizeof *box->mail);
  return PETRA_OK;
}

static petra_status archive_box(const petra_stage *stage, petra_tensor_archive *tensors, const char *name, bool forward,
                                mailbox *box) {
  int64_t count = box->count;
  char item[96];
  snprintf(item, sizeof item, "%s-count", name);
  PETRA_TRY(petra_archive_integer(tensors->archive, item, "messages", &count, 0, tensors->read));
  for (int64_t i = 0; i < count; i++) {
    petra_message none = {0};
    int64_t number = tensors->archive->reading ? 0 : box->mail[i].number;
    snprintf(item, sizeof item, "%s-%lld-microbatch", name, (long long)i);
    PETRA_TRY(petra_archive_integer(tensors->archive, item, "microbatch", &number, 0, tensors->read - 1));
    for (int64_t k = 0; k < i; k++)
      if (box->mail[k].number == number)
        return petra_archive_refuse(tensors->archive, item, "microbatch %lld is there twice", (long long)number);
    if (tensors->archive->reading)
      PETRA_TRY(put(box, number, &none));
    snprintf(item, sizeof item, "%s-%lld", name, (long long)i);
    PETRA_TRY(petra_message_archive(stage, tensors, item, forward, &box->mail[i].message));
  }
  return PETRA_OK;
}

/* Messages of evaluations are taken within the action that they are for, so no checkpoint contains them. */
static petra_status archive(petra_transport *base, int32_t stage, petra_tensor_archive *tensors) {
  static const char *const names[] = {"forward", "backward"};
  transport_local *t = (transport_local *)base;
  for (int c = 0; c <= PETRA_MESSAGE_BACKWARD; c++) {
    char name[40];
    snprintf(name, sizeof name, "messages/%s-%02d", names[c], stage);
    PETRA_TRY(archive_box(petra_stages_get(&t->stages, stage), tensors, name, c == PETRA_MESSAGE_FORWARD,
                          &t->at[stage - 1][c]));
  }
  return PETRA_OK;
}

static void destroy(petra_transport *base) {
  transport_local *t = (transport_local *)base;
  for (int32_t j = 0; j < t->stages.count; j++)
    for (int c = 0; c < PETRA_MESSAGE_KINDS; c++) {
      mailbox *box = &t->at[j][c];
      for (int64_t i = 0; i < box->count; i++)
        petra_message_release(&box->mail[i].message);
      petra_free(box->mail);
    }
  petra_free(t);
}

petra_status petra_transport_local_create(const petra_stages *stages, petra_transport **out) {
  static const petra_transport_ops ops = {.post = post, .take = take, .archive = archive, .destroy = destroy};
  transport_local *t;
  PETRA_TRY(petra_allocate(&t, 1, sizeof *t + (size_t)stages->count * sizeof *t->at));
  t->base.ops = &ops;
  t->stages = *stages;
  *out = &t->base;
  return PETRA_OK;
}

/* --- between processes --- */

static petra_host_type type_of(const petra_backend *backend, petra_tensor_kind kind) {
  if (kind == PETRA_TENSOR_QUANTISED)
    return PETRA_HOST_U8;
  return backend->element_bytes[kind] > sizeof(float) ? PETRA_HOST_F64 : PETRA_HOST_F32;
}

size_t petra_packed_bytes(const petra_backend *backend, petra_tensor_kind kind, int64_t elements) {
  static const size_t bytes[] = {
      [PETRA_HOST_F32] = sizeof(float), [PETRA_HOST_F64] = sizeof(double), [PETRA_HOST_U8] = 1};
  return (size_t)elements * bytes[type_of(backend, kind)];
}

petra_status petra_pack(const petra_tensor *tensor, void *to) {
  return petra_op_download(tensor->backend, tensor, to, type_of(tensor->backend, tensor->kind));
}

petra_status petra_unpack(petra_tensor *tensor, const void *from) {
  return petra_op_upload(tensor->backend, tensor, from, type_of(tensor->backend, tensor->kind));
}

const char *petra_address_describe(const petra_address *address, char text[PETRA_ADDRESS_TEXT]) {
  static const char *const channels[] = {"forward message", "backward message", "evaluation's message"};
  snprintf(text, PETRA_ADDRESS_TEXT, "the %s %lld of stage %d", channels[address->kind], (long long)address->number,
           address->stage);
  return text;
}

int64_t petra_transport_bytes_out(int64_t message_bytes) {
  return petra_channel_bytes_out(sizeof(petra_message_shapes) + (size_t)message_bytes);
}

int64_t petra_transport_bytes_in(int64_t message_bytes) {
  return petra_channel_bytes_in(sizeof(petra_message_shapes) + (size_t)message_bytes,
                                PETRA_TRANSPORT_AHEAD + 1); /* one more is being unpacked */
}
