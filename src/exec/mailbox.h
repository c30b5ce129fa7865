/* Messages that wait for their stage, named by microbatch. */
#ifndef PETRA_EXEC_MAILBOX_H
#define PETRA_EXEC_MAILBOX_H

#include "stage/stage.h"

typedef struct petra_mail {
  int64_t microbatch;
  petra_message message;
} petra_mail;

typedef struct petra_mailbox {
  petra_mail *mail; /* in the order in which it came */
  int count;
  int64_t capacity;
} petra_mailbox;

void petra_mailbox_fini(petra_mailbox *box);

/* Takes the message over, also when it fails. */
petra_status petra_mailbox_put(petra_mailbox *box, int64_t microbatch, petra_message *message);

/* The message of `microbatch` (PETRA_INTERNAL, logged, if it is not there); the caller releases it. */
petra_status petra_mailbox_take(petra_mailbox *box, int64_t microbatch, petra_message *out);

#endif
