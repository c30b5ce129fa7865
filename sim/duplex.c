/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/duplex.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

typedef struct message {
  int64_t alone_ns, shared_ns;
  petra_packet packet;
} message;

/* Of one direction: the first one is under way. */
typedef struct line {
  message *messages;
  int64_t count, capacity;
  double left_ns; /* of the first one, at full rate */
} line;

typedef struct pair {
  line line[2];
  int64_t now_ns, number;
} pair;

struct petra_duplex {
  int32_t pairs;
  pair pair[];
};

petra_status petra_duplex_create(int32_t pairs, petra_duplex **out) {
  petra_duplex *duplex;
  PETRA_TRY(petra_allocate(&duplex, 1, sizeof *duplex + (size_t)pairs * sizeof *duplex->pair));
  duplex->pairs = pairs;
  *out = duplex;
  return PETRA_OK;
}

void petra_duplex_destroy(petra_duplex *duplex) {
  if (!duplex)
    return;
  for (int32_t i = 0; i < duplex->pairs; i++)
    for (int d = 0; d < 2; d++)
      petra_free(duplex->pair[i].line[d].messages);
  petra_free(duplex);
}

/* Of the first message of a direction; there is one. */
static double rate(const pair *p, int direction) {
  const message *first = p->line[direction].messages;
  return p->line[!direction].count == 0 || first->shared_ns == 0 ? 1
                                                                 : (double)first->alone_ns / (double)first->shared_ns;
}

/* INT64_MAX: nothing is under way. */
static int64_t end_ns(const pair *p, int direction) {
  const double left_ns = p->line[direction].left_ns;
  if (p->line[direction].count == 0)
    return INT64_MAX;
  return p->now_ns + (left_ns > 0 ? llround(left_ns / rate(p, direction)) : 0);
}

static void advance(pair *p, int64_t now_ns) {
  double done_ns[2] = {0, 0};
  for (int d = 0; d < 2; d++)
    if (p->line[d].count > 0)
      done_ns[d] = rate(p, d) * (double)(now_ns - p->now_ns);
  for (int d = 0; d < 2; d++)
    p->line[d].left_ns -= done_ns[d];
  p->now_ns = now_ns;
  p->number++;
}

petra_status petra_duplex_send(petra_duplex *duplex, int64_t now_ns, int32_t pair_number, int direction,
                               int64_t alone_ns, int64_t shared_ns, const petra_packet *packet) {
  pair *p = &duplex->pair[pair_number];
  line *l = &p->line[direction];
  PETRA_TRY(petra_array_reserve(&l->messages, &l->capacity, l->count + 1, sizeof *l->messages));
  advance(p, now_ns);
  l->messages[l->count++] = (message){alone_ns, shared_ns, *packet};
  if (l->count == 1)
    l->left_ns = (double)alone_ns;
  return PETRA_OK;
}

bool petra_duplex_next_end(const petra_duplex *duplex, int32_t pair_number, int64_t *time_ns, int64_t *number) {
  const pair *p = &duplex->pair[pair_number];
  const int64_t up_ns = end_ns(p, 0), down_ns = end_ns(p, 1);
  *time_ns = up_ns < down_ns ? up_ns : down_ns;
  *number = p->number;
  return *time_ns < INT64_MAX;
}

bool petra_duplex_is_current(const petra_duplex *duplex, int32_t pair_number, int64_t number) {
  return duplex->pair[pair_number].number == number;
}

bool petra_duplex_take_ended(petra_duplex *duplex, int32_t pair_number, int64_t now_ns, petra_packet *out) {
  pair *p = &duplex->pair[pair_number];
  for (int d = 0; d < 2; d++) {
    line *l = &p->line[d];
    if (end_ns(p, d) > now_ns)
      continue;
    advance(p, now_ns);
    *out = l->messages[0].packet;
    memmove(l->messages, l->messages + 1, (size_t)(--l->count) * sizeof *l->messages);
    l->left_ns = l->count > 0 ? (double)l->messages[0].alone_ns : 0;
    return true;
  }
  return false;
}
