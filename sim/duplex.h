/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between pairs of devices whose two directions slow each other: half duplex cards, or protocols that wait in the queue
 * of the other direction. Each direction is a line, first come first served. The message at its head goes at full rate
 * while nothing goes the other way; while something does, at the rate at which messages of its size go where as much goes the
 * other way. A fluid model: rates change whenever a message begins or ends. Times are int64 nanoseconds. */
#ifndef PETRA_SIM_DUPLEX_H
#define PETRA_SIM_DUPLEX_H

#include "base/status.h"
#include "schedule/action.h"

typedef struct petra_duplex petra_duplex;

petra_status petra_duplex_create(int32_t pairs, petra_duplex **out);
void petra_duplex_destroy(petra_duplex *duplex); /* NULL is allowed */

/* A message joins the line of a direction, 0 or 1, of a pair, from 0. It takes alone_ns with nothing the other way and
 * shared_ns >= alone_ns with a message like it. */
petra_status petra_duplex_send(petra_duplex *duplex, int64_t now_ns, int32_t pair, int direction, int64_t alone_ns,
                               int64_t shared_ns, const petra_packet *packet);

/* When the next message of a pair is through under the present rates, with the number of this state; false: none is
 * under way. */
bool petra_duplex_next_end(const petra_duplex *duplex, int32_t pair, int64_t *time_ns, int64_t *number);

/* Whether nothing of the pair has begun or ended since `number` was given. */
bool petra_duplex_is_current(const petra_duplex *duplex, int32_t pair, int64_t number);

/* Takes out one message that is through at `now_ns`, direction 0 first; false: none (left). */
bool petra_duplex_take_ended(petra_duplex *duplex, int32_t pair, int64_t now_ns, petra_packet *out);

#endif
