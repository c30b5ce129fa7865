/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/link.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- pairs of devices whose two directions slow each other ---
 *
 * Causes are half duplex cards, or protocols that wait in the queue of the other direction. Each direction is a queue,
 * first come first served. The first message is sent at full rate while the other direction is idle. Otherwise its rate
 * is the rate of messages of its size while messages of the same size go in the other direction. This is a fluid model:
 * rates change whenever a message begins or ends. Times are int64 nanoseconds. */

/* It takes alone_ns if the other direction is idle, and shared_ns >= alone_ns with a message of its size there. */
typedef struct message {
  int64_t alone_ns, shared_ns;
  petra_packet packet;
} message;

/* A direction. Its first message is being transmitted. */
typedef struct line {
  message *messages;
  int64_t count, capacity;
  double left_ns; /* time that the rest of the first message takes at full rate */
} line;

/* `number` changes whenever a message begins or ends. */
typedef struct duplex_pair {
  line line[2];
  int64_t now_ns, number;
} duplex_pair;

/* Returns the rate of the first message of a direction, which exists. */
static double rate(const duplex_pair *p, int direction) {
  const message *first = p->line[direction].messages;
  return p->line[!direction].count == 0 || first->shared_ns == 0 ? 1
                                                                 : (double)first->alone_ns / (double)first->shared_ns;
}

/* Returns when the first message ends; INT64_MAX: there is none. */
static int64_t end_ns(const duplex_pair *p, int direction) {
  const double left_ns = p->line[direction].left_ns;
  if (p->line[direction].count == 0)
    return INT64_MAX;
  return p->now_ns + (left_ns > 0 ? llround(left_ns / rate(p, direction)) : 0);
}

static void advance(duplex_pair *p, int64_t now_ns) {
  double done_ns[2] = {0, 0};
  for (int d = 0; d < 2; d++)
    if (p->line[d].count > 0)
      done_ns[d] = rate(p, d) * (double)(now_ns - p->now_ns);
  for (int d = 0; d < 2; d++)
    p->line[d].left_ns -= done_ns[d];
  p->now_ns = now_ns;
  p->number++;
}

/* Takes a message that has ended at `now_ns`, direction 0 first; returns false if there is none. */
static bool duplex_take_ended(duplex_pair *p, int64_t now_ns, petra_packet *out) {
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

/* --- fair sharing: max-min fair sharing of links and cards by concurrent transmissions ---
 *
 * A fluid model (progressive filling, Bertsekas and Gallager, "Data networks", section 6.5.2). The remainder of a
 * transmission is a number of bytes, as a double. */

/* The resources of a transmission: its link, and the cards at both ends (-1: no finite card). */
typedef struct route {
  int32_t link, cards[2];
  double link_Bps; /* bandwidth of the link, the same for all its transmissions; 0: infinite */
  int64_t latency_ns;
} route;

typedef struct flow {
  double bytes_left, rate_Bps;
  int64_t end_ns; /* end at the current rates */
  double link_Bps;
  int64_t latency_ns;
  int32_t resource[3]; /* link, cards; -1: none */
  petra_packet packet;
  bool fixed; /* the current filling has set its rate */
} flow;

/* During a filling: the remaining bandwidth, and the number of flows that are not fixed yet. */
typedef struct resource {
  double left_Bps;
  int32_t open;
} resource;

typedef struct fair_share {
  int32_t links;
  double card_Bps;
  int64_t now_ns, number;
  int32_t count;
  int64_t capacity;
  flow *flows;         /* in the order of their starts */
  resource resource[]; /* links, then cards */
} fair_share;

#define LONGEST_NS (INT64_C(1) << 60)

/* Returns the time of `bytes` at `Bps` > 0 in nanoseconds, rounded; the maximum is LONGEST_NS. */
static int64_t transmission_ns(double bytes, double Bps) {
  double ns = 1e9 * bytes / Bps;
  return ns < (double)LONGEST_NS ? llround(ns) : LONGEST_NS;
}

/* Bandwidth 0: infinite. Every transmission must use a finite link or card. */
static petra_status create_fair(int32_t links, int32_t cards, double card_Bps, fair_share **out) {
  PETRA_TRY(petra_allocate(out, 1, sizeof **out + ((size_t)links + (size_t)cards) * sizeof(resource)));
  (*out)->links = links;
  (*out)->card_Bps = card_Bps > 0 ? card_Bps : INFINITY;
  return PETRA_OK;
}

static void advance_flows(fair_share *fair, int64_t now_ns) {
  double elapsed_s = 1e-9 * (double)(now_ns - fair->now_ns);
  for (int32_t i = 0; i < fair->count; i++)
    fair->flows[i].bytes_left -= fair->flows[i].rate_Bps * elapsed_s;
  fair->now_ns = now_ns;
}

/* Fixes every flow of the tightest resource at that resource's equal share, and subtracts the shares from the
 * others. */
static void fix_tightest(fair_share *fair, int32_t tightest, double share, int32_t *left) {
  for (int32_t i = 0; i < fair->count; i++) {
    flow *f = &fair->flows[i];
    bool on = f->resource[0] == tightest || f->resource[1] == tightest || f->resource[2] == tightest;
    if (f->fixed || !on)
      continue;
    f->fixed = true;
    f->rate_Bps = share;
    --*left;
    for (int r = 0; r < 3; r++)
      if (f->resource[r] >= 0) {
        fair->resource[f->resource[r]].left_Bps -= share;
        fair->resource[f->resource[r]].open--;
      }
  }
}

/* Sets all rates by progressive filling over the resources in use. */
static void set_rates(fair_share *fair) {
  for (int32_t i = 0; i < fair->count; i++)
    for (int r = 0; r < 3; r++)
      if (fair->flows[i].resource[r] >= 0)
        fair->resource[fair->flows[i].resource[r]] = (resource){r == 0 ? fair->flows[i].link_Bps : fair->card_Bps, 0};
  for (int32_t i = 0; i < fair->count; i++) {
    fair->flows[i].fixed = false;
    for (int r = 0; r < 3; r++)
      if (fair->flows[i].resource[r] >= 0)
        fair->resource[fair->flows[i].resource[r]].open++;
  }
  for (int32_t left = fair->count; left > 0;) {
    int32_t tightest = -1;
    double share = INFINITY;
    for (int32_t i = 0; i < fair->count; i++)
      for (int r = 0; r < 3 && !fair->flows[i].fixed; r++) {
        int32_t number = fair->flows[i].resource[r];
        if (number < 0 || fair->resource[number].left_Bps == INFINITY)
          continue;
        double equal = fair->resource[number].left_Bps / fair->resource[number].open;
        if (tightest < 0 || equal < share) {
          share = equal;
          tightest = number;
        }
      }
    fix_tightest(fair, tightest, share, &left);
  }
  for (int32_t i = 0; i < fair->count; i++) {
    flow *f = &fair->flows[i];
    f->end_ns = fair->now_ns + (f->bytes_left > 0 ? transmission_ns(f->bytes_left, f->rate_Bps) : 0);
  }
  fair->number++;
}

/* Starts a transmission. */
static petra_status start_flow(fair_share *fair, int64_t now_ns, const route *way, double bytes,
                               const petra_packet *packet) {
  PETRA_TRY(petra_array_reserve(&fair->flows, &fair->capacity, (int64_t)fair->count + 1, sizeof *fair->flows));
  advance_flows(fair, now_ns);
  flow *f = &fair->flows[fair->count++];
  *f = (flow){.bytes_left = bytes,
              .link_Bps = way->link_Bps > 0 ? way->link_Bps : INFINITY,
              .latency_ns = way->latency_ns,
              .packet = *packet};
  f->resource[0] = way->link;
  for (int c = 0; c < 2; c++)
    f->resource[c + 1] = way->cards[c] < 0 ? -1 : fair->links + way->cards[c];
  set_rates(fair);
  return PETRA_OK;
}

/* Gets the time at which the next transmission ends at the current rates, and a number that identifies the current
 * state: it is fair->number until something starts or ends. Returns false if there is no transmission. */
static bool next_end(const fair_share *fair, int64_t *time_ns, int64_t *number) {
  if (fair->count == 0)
    return false;
  *time_ns = fair->flows[0].end_ns;
  for (int32_t i = 1; i < fair->count; i++)
    if (fair->flows[i].end_ns < *time_ns)
      *time_ns = fair->flows[i].end_ns;
  *number = fair->number;
  return true;
}

/* Takes the transmission that started first among those that have ended at `now_ns`; returns false if there is none. */
static bool take_ended(fair_share *fair, int64_t now_ns, int64_t *latency_ns, petra_packet *out) {
  for (int32_t i = 0; i < fair->count; i++) {
    if (fair->flows[i].end_ns > now_ns)
      continue;
    advance_flows(fair, now_ns);
    *out = fair->flows[i].packet;
    *latency_ns = fair->flows[i].latency_ns;
    memmove(&fair->flows[i], &fair->flows[i + 1], (size_t)(--fair->count - i) * sizeof *fair->flows);
    /* Other transmissions that end now keep their end: the rates of the rest are set when the last of them is taken. */
    for (int32_t k = 0; k < fair->count; k++)
      if (fair->flows[k].end_ns <= now_ns)
        return true;
    set_rates(fair);
    return true;
  }
  return false;
}

/* --- the fabric --- */

enum { DETAIL_ARRIVAL = 0, DETAIL_RATES = 1, BACKWARD_BIT = 2, EXCHANGE_BIT = 4 };

struct petra_fabric {
  petra_fabric_options options;
  petra_event_queue *events;
  fair_share *fair;
  duplex_pair *duplex; /* per pair of devices (pair_of); NULL: the directions are independent */
  int64_t *far;        /* pairs that are not neighbours, rising: lower device times the number of devices + higher */
  int32_t far_count, nodes;
  int64_t *card_free_ns; /* fifo: per node, out and in; after the links */
  int64_t *link_free_ns; /* fifo: per link (link_of, link_of_replicas), when its queue is empty */
};

static int64_t far_key(const petra_fabric *fabric, int32_t a, int32_t b) {
  return a < b ? (int64_t)a * fabric->options.devices + b : (int64_t)b * fabric->options.devices + a;
}

static int compare_keys(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Lists the pairs of devices that exchange messages and are not neighbours. In a loop: the first and the last. */
static petra_status find_far_pairs(petra_fabric *fabric) {
  const petra_fabric_options *options = &fabric->options;
  const size_t boundaries = options->device_of ? (size_t)options->stages : 1;
  int32_t count = 0;
  PETRA_TRY(petra_allocate(&fabric->far, boundaries, sizeof *fabric->far));
  if (!options->device_of)
    fabric->far[count++] = far_key(fabric, 0, options->devices - 1);
  for (int32_t j = 0; options->device_of && j + 1 < options->stages; j++) {
    const int32_t a = options->device_of[j] - 1, b = options->device_of[j + 1] - 1;
    if (a > b + 1 || b > a + 1)
      fabric->far[count++] = far_key(fabric, a, b);
  }
  qsort(fabric->far, (size_t)count, sizeof *fabric->far, compare_keys);
  for (int32_t i = 0; i < count; i++)
    if (i == 0 || fabric->far[i] != fabric->far[i - 1])
      fabric->far[fabric->far_count++] = fabric->far[i];
  return PETRA_OK;
}

/* Numbers the pairs of devices: neighbours by their lower device, then the other pairs. */
static int32_t pair_of(const petra_fabric *fabric, int32_t from, int32_t to) {
  if (to == from + 1 || to == from - 1)
    return from < to ? from : to;
  const int64_t key = far_key(fabric, from, to);
  const int64_t *found = bsearch(&key, fabric->far, (size_t)fabric->far_count, sizeof key, compare_keys);
  return fabric->options.devices + (int32_t)(found - fabric->far);
}

/* Numbers the links: two per device, up and down to its neighbours; then two for each other pair of devices; then, with
 * replicas, one per device to its replicas. */
static int32_t link_of(const petra_fabric *fabric, int32_t from, int32_t to) {
  if (to == from + 1 || to == from - 1)
    return 2 * from + (to < from);
  return 2 * pair_of(fabric, from, to) + (to > from);
}

static int32_t pair_count(const petra_fabric *fabric) {
  return fabric->options.devices + fabric->far_count;
}

static int32_t link_of_replicas(const petra_fabric *fabric, int32_t device) {
  return 2 * pair_count(fabric) + device;
}

static int32_t node_of(const petra_fabric_options *options, int32_t device) {
  return options->node ? options->node[device] : device;
}

petra_status petra_fabric_create(const petra_fabric_options *options, petra_event_queue *events, petra_fabric **out) {
  petra_fabric *fabric;
  int32_t nodes = 0;
  for (int32_t d = 0; d < options->devices; d++)
    nodes = node_of(options, d) < nodes ? nodes : node_of(options, d) + 1;
  PETRA_TRY(petra_allocate(&fabric, 1, sizeof *fabric));
  *out = fabric;
  fabric->options = *options;
  fabric->nodes = nodes;
  fabric->events = events;
  PETRA_TRY(find_far_pairs(fabric));
  const size_t pairs = (size_t)pair_count(fabric);
  const size_t links = 2 * pairs + (options->replicas ? (size_t)options->devices : 0);
  PETRA_TRY(petra_allocate(&fabric->link_free_ns, links + 2 * (size_t)nodes, sizeof *fabric->link_free_ns));
  fabric->card_free_ns = fabric->link_free_ns + links;
  if (options->times) {
    fabric->options.latency_ns = options->times->ns[0];
    fabric->options.sharing = PETRA_LINK_FIFO;
    fabric->options.bandwidth_Bps = fabric->options.card_Bps = 0;
    fabric->options.has_node_link = false;
  }
  if (fabric->options.sharing == PETRA_LINK_FAIR)
    PETRA_TRY(create_fair((int32_t)links, 2 * nodes, options->card_Bps, &fabric->fair));
  if (options->times && options->shared)
    PETRA_TRY(petra_allocate(&fabric->duplex, pairs, sizeof *fabric->duplex));
  return PETRA_OK;
}

void petra_fabric_destroy(petra_fabric *fabric) {
  if (!fabric)
    return;
  if (fabric->fair)
    petra_free(fabric->fair->flows);
  for (int32_t i = 0; fabric->duplex && i < pair_count(fabric); i++)
    for (int d = 0; d < 2; d++)
      petra_free(fabric->duplex[i].line[d].messages);
  petra_free(fabric->duplex);
  PETRA_FREE_ALL(fabric->fair, fabric->link_free_ns, fabric->far, fabric);
}

static petra_status push_arrival(petra_fabric *fabric, int64_t time_ns, const petra_packet *packet) {
  const petra_event event = {.time_ns = time_ns,
                             .priority = 1,
                             .kind = fabric->options.event_kind,
                             .stage = packet->stage,
                             .detail = DETAIL_ARRIVAL | (packet->backward ? BACKWARD_BIT : 0) |
                                       (packet->exchange ? EXCHANGE_BIT : 0),
                             .microbatch = packet->microbatch};
  return petra_event_queue_push(fabric->events, &event);
}

static int64_t later(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Numbers the cards of the nodes: each has one out and one in. */
static int32_t card_of(const petra_fabric_options *options, int32_t device, bool in) {
  return 2 * node_of(options, device) + in;
}

static bool uses_cards(const petra_fabric_options *options, int32_t from, int32_t to) {
  return options->card_Bps > 0 && node_of(options, from) != node_of(options, to);
}

/* Returns true if the link between two devices is the link inside a node. */
static bool uses_node_link(const petra_fabric_options *options, int32_t from, int32_t to) {
  return options->has_node_link && !options->times && node_of(options, from) == node_of(options, to);
}

static double link_bandwidth_Bps(const petra_fabric_options *options, int32_t from, int32_t to) {
  return uses_node_link(options, from, to) ? options->node_bandwidth_Bps : options->bandwidth_Bps;
}

int64_t petra_fabric_latency_ns(const petra_fabric_options *options, int32_t from, int32_t to) {
  if (from == to)
    return 0;
  return uses_node_link(options, from, to) ? options->node_latency_ns : options->latency_ns;
}

static route route_between(const petra_fabric *fabric, int32_t from, int32_t to) {
  const petra_fabric_options *options = &fabric->options;
  route way = {link_of(fabric, from, to),
               {-1, -1},
               link_bandwidth_Bps(options, from, to),
               petra_fabric_latency_ns(options, from, to)};
  if (uses_cards(options, from, to)) {
    way.cards[0] = card_of(options, from, false);
    way.cards[1] = card_of(options, to, true);
  }
  return way;
}

/* The nodes of the replicas do the same as this node: as much leaves this node as arrives there, and the reverse. */
static route route_to_replicas(const petra_fabric *fabric, int32_t device) {
  const petra_fabric_options *options = &fabric->options;
  route way = {link_of_replicas(fabric, device), {-1, -1}, options->bandwidth_Bps, 2 * options->latency_ns};
  for (int c = 0; c < 2 && options->card_Bps > 0; c++)
    way.cards[c] = card_of(options, device, c == 1);
  return way;
}

/* Returns the smallest bandwidth on the path over a link; 0: infinite. */
static double bandwidth_Bps(const petra_fabric_options *options, double link_Bps, bool cards) {
  if (!cards || options->card_Bps <= 0)
    return link_Bps;
  return link_Bps > 0 ? fmin(link_Bps, options->card_Bps) : options->card_Bps;
}

int64_t petra_link_time_ns(const petra_link_times *times, int64_t bytes) {
  int32_t i = 1;
  if (bytes <= times->bytes[0] || times->count == 1)
    return times->ns[0];
  while (i < times->count - 1 && bytes > times->bytes[i])
    i++;
  const double slope = (double)(times->ns[i] - times->ns[i - 1]) / (double)(times->bytes[i] - times->bytes[i - 1]);
  return later(times->ns[i - 1] + llround(slope * (double)(bytes - times->bytes[i - 1])), 0);
}

static int64_t alone_ns(const petra_fabric_options *options, double link_Bps, bool cards, int64_t bytes) {
  if (options->times)
    return later(petra_link_time_ns(options->times, bytes) - options->times->ns[0], 0);
  const double bandwidth = bandwidth_Bps(options, link_Bps, cards);
  return bandwidth <= 0 ? 0 : transmission_ns((double)bytes, bandwidth);
}

int64_t petra_fabric_alone_ns(const petra_fabric_options *options, int32_t from, int32_t to, int64_t bytes) {
  return from == to ? 0
                    : alone_ns(options, link_bandwidth_Bps(options, from, to), uses_cards(options, from, to), bytes);
}

/* Returns the time of a message while one of the same size goes in the other direction. Alone it takes alone_ns. */
static int64_t shared_ns(const petra_fabric_options *options, int64_t bytes, int64_t alone_ns) {
  return options->shared ? later(petra_link_time_ns(options->shared, bytes) - options->latency_ns, alone_ns) : alone_ns;
}

int64_t petra_fabric_exchange_alone_ns(const petra_fabric_options *options, int64_t bytes) {
  return shared_ns(options, bytes, alone_ns(options, options->bandwidth_Bps, true, bytes));
}

static petra_status send_fifo(petra_fabric *fabric, int64_t now_ns, const route *way, int64_t bytes,
                              const petra_packet *packet, bool *arrived) {
  const bool cards = way->cards[0] >= 0;
  int64_t *link = &fabric->link_free_ns[way->link];
  int64_t *out = cards ? &fabric->card_free_ns[way->cards[0]] : link;
  int64_t *in = cards ? &fabric->card_free_ns[way->cards[1]] : link;
  const int64_t start_ns = later(later(now_ns, *link), later(*out, *in));
  const int64_t end_ns = start_ns + (packet->exchange ? petra_fabric_exchange_alone_ns(&fabric->options, bytes)
                                                      : alone_ns(&fabric->options, way->link_Bps, cards, bytes));
  if (end_ns > LONGEST_NS * 4)
    return petra_fail(PETRA_SCHEDULE,
                      "a message of %lld bytes for stage %d would arrive after more than 146 years; expected "
                      "more bandwidth",
                      (long long)bytes, packet->stage);
  *link = *out = *in = end_ns;
  *arrived = end_ns + way->latency_ns == now_ns;
  return *arrived ? PETRA_OK : push_arrival(fabric, end_ns + way->latency_ns, packet);
}

/* Pushes an event at the next moment when a transmission ends at the current rates, in a pair of devices or (0)
 * anywhere; older events are recognised by their number. */
static petra_status push_change(petra_fabric *fabric, int64_t time_ns, int32_t pair, int64_t number) {
  const petra_event event = {.time_ns = time_ns,
                             .kind = fabric->options.event_kind,
                             .stage = pair,
                             .detail = DETAIL_RATES,
                             .microbatch = number};
  return petra_event_queue_push(fabric->events, &event);
}

static petra_status push_rates(petra_fabric *fabric) {
  int64_t time_ns, number;
  return next_end(fabric->fair, &time_ns, &number) ? push_change(fabric, time_ns, 0, number) : PETRA_OK;
}

static petra_status push_end(petra_fabric *fabric, int32_t pair) {
  const duplex_pair *p = &fabric->duplex[pair];
  const int64_t up_ns = end_ns(p, 0), down_ns = end_ns(p, 1), first_ns = up_ns < down_ns ? up_ns : down_ns;
  return first_ns < INT64_MAX ? push_change(fabric, first_ns, pair, p->number) : PETRA_OK;
}

/* Adds a message to the queue of its direction. */
static petra_status send_duplex(petra_fabric *fabric, int64_t now_ns, int32_t from, int32_t to, int64_t bytes,
                                const petra_packet *packet) {
  const petra_fabric_options *options = &fabric->options;
  const int32_t pair = pair_of(fabric, from, to);
  const int64_t alone_ns = petra_fabric_alone_ns(options, from, to, bytes);
  line *l = &fabric->duplex[pair].line[to < from];
  PETRA_TRY(petra_array_reserve(&l->messages, &l->capacity, l->count + 1, sizeof *l->messages));
  advance(&fabric->duplex[pair], now_ns);
  l->messages[l->count++] = (message){alone_ns, shared_ns(options, bytes, alone_ns), *packet};
  if (l->count == 1)
    l->left_ns = (double)alone_ns;
  return push_end(fabric, pair);
}

static petra_status send(petra_fabric *fabric, int64_t now_ns, const route *way, int64_t bytes,
                         const petra_packet *packet, bool *arrived) {
  const petra_fabric_options *options = &fabric->options;
  *arrived = false;
  if (options->sharing == PETRA_LINK_FIFO || bytes == 0 ||
      bandwidth_Bps(options, way->link_Bps, way->cards[0] >= 0) <= 0)
    return send_fifo(fabric, now_ns, way, bytes, packet, arrived);
  PETRA_TRY(start_flow(fabric->fair, now_ns, way, (double)bytes, packet));
  return push_rates(fabric);
}

petra_status petra_fabric_send(petra_fabric *fabric, int64_t now_ns, int32_t from, int32_t to, int64_t bytes,
                               const petra_packet *packet, bool *arrived) {
  *arrived = from == to;
  if (from == to)
    return PETRA_OK;
  if (fabric->duplex)
    return send_duplex(fabric, now_ns, from, to, bytes, packet);
  const route way = route_between(fabric, from, to);
  return send(fabric, now_ns, &way, bytes, packet, arrived);
}

petra_status petra_fabric_exchange(petra_fabric *fabric, int64_t now_ns, int32_t device, int64_t bytes,
                                   const petra_packet *packet, bool *arrived) {
  const route way = route_to_replicas(fabric, device);
  return send(fabric, now_ns, &way, bytes, packet, arrived);
}

petra_status petra_fabric_event(petra_fabric *fabric, const petra_event *event, petra_packet *packet, bool *arrived) {
  *arrived = false;
  if (event->detail != DETAIL_RATES) {
    *packet = (petra_packet){.stage = event->stage,
                             .backward = (event->detail & BACKWARD_BIT) != 0,
                             .exchange = (event->detail & EXCHANGE_BIT) != 0,
                             .microbatch = event->microbatch};
    *arrived = true;
    return PETRA_OK;
  }
  petra_packet done;
  if (fabric->duplex) {
    duplex_pair *p = &fabric->duplex[event->stage];
    if (p->number != event->microbatch)
      return PETRA_OK;
    while (duplex_take_ended(p, event->time_ns, &done))
      PETRA_TRY(push_arrival(fabric, event->time_ns + fabric->options.latency_ns, &done));
    return push_end(fabric, event->stage);
  }
  if (fabric->fair->number != event->microbatch)
    return PETRA_OK;
  int64_t latency_ns;
  while (take_ended(fabric->fair, event->time_ns, &latency_ns, &done))
    PETRA_TRY(push_arrival(fabric, event->time_ns + latency_ns, &done));
  return push_rates(fabric);
}

/* --- cycles --- */

static void give_pair(const duplex_pair *p, petra_cycle *cycle) {
  const bool idle = p->line[0].count == 0 && p->line[1].count == 0;
  petra_cycle_time(cycle, idle ? cycle->now_ns : p->now_ns);
  for (int d = 0; d < 2; d++) {
    petra_cycle_value(cycle, p->line[d].count);
    petra_cycle_real(cycle, p->line[d].count > 0 ? p->line[d].left_ns : 0);
    for (int64_t i = 0; i < p->line[d].count; i++) {
      const message *m = &p->line[d].messages[i];
      petra_cycle_value(cycle, m->alone_ns);
      petra_cycle_value(cycle, m->shared_ns);
      petra_cycle_packet(cycle, &m->packet);
    }
  }
}

static void give_flows(const fair_share *fair, petra_cycle *cycle) {
  petra_cycle_value(cycle, fair->count);
  petra_cycle_time(cycle, fair->count > 0 ? fair->now_ns : cycle->now_ns);
  for (int32_t i = 0; i < fair->count; i++) {
    const flow *f = &fair->flows[i];
    petra_cycle_real(cycle, f->bytes_left);
    petra_cycle_real(cycle, f->rate_Bps);
    petra_cycle_time(cycle, f->end_ns);
    for (int r = 0; r < 3; r++)
      petra_cycle_value(cycle, f->resource[r]);
    petra_cycle_packet(cycle, &f->packet);
  }
}

void petra_fabric_state(const petra_fabric *fabric, petra_cycle *cycle) {
  const int64_t queues = fabric->card_free_ns - fabric->link_free_ns + 2 * (int64_t)fabric->nodes;
  for (int64_t i = 0; i < queues; i++)
    petra_cycle_time(cycle, later(fabric->link_free_ns[i], cycle->now_ns));
  for (int32_t i = 0; fabric->duplex && i < pair_count(fabric); i++)
    give_pair(&fabric->duplex[i], cycle);
  if (fabric->fair)
    give_flows(fabric->fair, cycle);
}

bool petra_fabric_event_state(const petra_fabric *fabric, const petra_event *event, petra_cycle *cycle) {
  if (event->detail == DETAIL_RATES)
    return fabric->duplex ? fabric->duplex[event->stage].number == event->microbatch
                          : fabric->fair->number == event->microbatch;
  petra_cycle_microbatch(cycle, event->microbatch);
  return true;
}
