#include "exec/mailbox.h"

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

void petra_mailbox_fini(petra_mailbox *box) {
  for (int i = 0; i < box->count; i++)
    petra_message_release(&box->mail[i].message);
  petra_free(box->mail);
  *box = (petra_mailbox){0};
}

petra_status petra_mailbox_put(petra_mailbox *box, int64_t microbatch, petra_message *message) {
  petra_status status = petra_array_reserve(&box->mail, &box->capacity, (int64_t)box->count + 1, sizeof *box->mail);
  if (status != PETRA_OK) {
    petra_message_release(message);
    return status;
  }
  box->mail[box->count++] = (petra_mail){microbatch, *message};
  *message = (petra_message){{{NULL, NULL}}, {{NULL, NULL}}};
  return PETRA_OK;
}

petra_status petra_mailbox_take(petra_mailbox *box, int64_t microbatch, petra_message *out) {
  int i = 0;
  while (i < box->count && box->mail[i].microbatch != microbatch)
    i++;
  if (i == box->count)
    return petra_fail(PETRA_INTERNAL, "the message of microbatch %lld is not there", (long long)microbatch);
  *out = box->mail[i].message;
  box->count--;
  memmove(&box->mail[i], &box->mail[i + 1], (size_t)(box->count - i) * sizeof *box->mail);
  return PETRA_OK;
}
