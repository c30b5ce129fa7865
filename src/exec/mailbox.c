#include "exec/mailbox.h"

#include "base/log.h"
#include "base/mem.h"

void petra_mailbox_fini(petra_mailbox *box) {
  for (; box->count; box->count--, box->head = (box->head + 1) % box->capacity)
    petra_message_release(&box->ring[box->head].message);
  petra_free(box->ring);
  *box = (petra_mailbox){0};
}

static petra_status grow(petra_mailbox *box) {
  int capacity = box->capacity ? 2 * box->capacity : 4;
  petra_mail *ring;
  PETRA_TRY(petra_allocate(&ring, (size_t)capacity, sizeof *ring));
  for (int i = 0; i < box->count; i++)
    ring[i] = box->ring[(box->head + i) % box->capacity];
  petra_free(box->ring);
  box->ring = ring;
  box->head = 0;
  box->capacity = capacity;
  return PETRA_OK;
}

petra_status petra_mailbox_put(petra_mailbox *box, int64_t microbatch, petra_message *message) {
  petra_status status = box->count == box->capacity ? grow(box) : PETRA_OK;
  if (status != PETRA_OK) {
    petra_message_release(message);
    return status;
  }
  box->ring[(box->head + box->count++) % box->capacity] = (petra_mail){microbatch, *message};
  *message = (petra_message){{{NULL, NULL}}, {{NULL, NULL}}};
  return PETRA_OK;
}

petra_status petra_mailbox_take(petra_mailbox *box, int64_t microbatch, petra_message *out) {
  if (box->count == 0 || box->ring[box->head].microbatch != microbatch)
    return petra_fail(PETRA_INTERNAL, "the message of microbatch %lld is not the one that waits", (long long)microbatch);
  *out = box->ring[box->head].message;
  box->head = (box->head + 1) % box->capacity;
  box->count--;
  return PETRA_OK;
}
