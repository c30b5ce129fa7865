/* SPDX-License-Identifier: Apache-2.0 */
/* The transport within a process: a mailbox for each stage and kind of message. A message counts in the account of its
 * receiver (category messages) from the moment when it is posted. */
#pragma once

#include "exec/stages.h"
#include "exec/transport.h"

/* Serves the stages that are here; they are borrowed. Posting to another one returns PETRA_INTERNAL. */
petra_status petra_transport_local_create(const petra_stages *stages, petra_transport **out);

/* Return true if this message waits, and the number of those of its kind that wait. */
bool petra_transport_local_has(const petra_transport *transport, const petra_address *at);
int64_t petra_transport_local_count(const petra_transport *transport, int32_t stage, petra_message_kind kind);
