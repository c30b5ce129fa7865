/* SPDX-License-Identifier: Apache-2.0 */
/* The network, by hand: 1e9 B/s is one byte per nanosecond. tests/reference/pipeline_simpy.py holds whole
 * pipelines against an independent simulator. */
#include "harness.h"
#include "base/rng.h"
#include "sim/link.h"

enum { MESSAGES = 4, KIND = 7, REPLICAS = -1 };

typedef struct message {
  int64_t at_ns;
  int32_t from, to; /* to REPLICAS: an exchange with the replicas */
  int64_t bytes;
  int64_t arrives_ns; /* expected */
} message;

static void send(petra_fabric *network, const message *m, int32_t number, int64_t *found) {
  const petra_packet packet = {.stage = m->to == REPLICAS ? m->from + 1 : m->to + 1,
                               .backward = m->to != REPLICAS && m->to < m->from,
                               .exchange = m->to == REPLICAS,
                               .microbatch = number};
  bool arrived;
  ck_assert_int_eq(m->to == REPLICAS
                       ? petra_fabric_exchange(network, m->at_ns, m->from, m->bytes, &packet, &arrived)
                       : petra_fabric_send(network, m->at_ns, m->from, m->to, m->bytes, &packet, &arrived),
                   PETRA_OK);
  if (arrived)
    *found = m->at_ns;
}

/* Sends the messages, which are in the order of their times, and records when each arrives. */
static void deliver(const petra_fabric_options *options, const message *messages, int count, int64_t *found) {
  petra_event_queue *events;
  petra_fabric *network;
  petra_fabric_options o = *options;
  o.event_kind = KIND;
  for (int i = 0; i < count; i++)
    found[i] = -1;
  ck_assert_int_eq(petra_event_queue_create(&events), PETRA_OK);
  ck_assert_int_eq(petra_fabric_create(&o, events, &network), PETRA_OK);
  for (int next = 0; next < count || petra_event_queue_time(events) < INT64_MAX;) {
    petra_packet packet;
    bool arrived;
    if (next < count && messages[next].at_ns < petra_event_queue_time(events)) {
      send(network, &messages[next], next, &found[next]);
      next++;
      continue;
    }
    petra_event event;
    ck_assert(petra_event_queue_pop(events, &event));
    ck_assert_int_eq(petra_fabric_event(network, &event, &packet, &arrived), PETRA_OK);
    if (!arrived)
      continue;
    const message *m = &messages[packet.microbatch];
    ck_assert_int_eq(found[packet.microbatch], -1);
    ck_assert_int_eq(packet.exchange, m->to == REPLICAS);
    ck_assert_int_eq(packet.stage, m->to == REPLICAS ? m->from + 1 : m->to + 1);
    ck_assert_int_eq(packet.backward, m->to != REPLICAS && m->to < m->from);
    found[packet.microbatch] = event.time_ns;
  }
  petra_fabric_destroy(network);
  petra_event_queue_destroy(events);
}

/* Checks when each message arrives. */
static void expect(const petra_fabric_options *options, const message *messages, int count) {
  int64_t found[MESSAGES];
  deliver(options, messages, count, found);
  for (int i = 0; i < count; i++)
    ck_assert_msg(found[i] == messages[i].arrives_ns, "message %d arrives at %lld, expected at %lld", i,
                  (long long)found[i], (long long)messages[i].arrives_ns);
}

START_TEST(fifo_queues_and_latency_overlaps) {
  const petra_fabric_options o = {.devices = 3, .latency_ns = 50, .bandwidth_Bps = 1e9};
  const message m[] = {{0, 0, 1, 100, 150}, {10, 0, 1, 100, 250}, {10, 1, 0, 100, 160}, {20, 0, 1, 0, 250}};
  expect(&o, m, 4); /* the empty message waits in line; the way back is a link of its own */
}
END_TEST

START_TEST(without_bandwidth_only_latency) {
  for (int sharing = PETRA_LINK_FIFO; sharing <= PETRA_LINK_FAIR; sharing++) {
    petra_fabric_options o = {.devices = 3, .sharing = sharing, .latency_ns = 50};
    const message late[] = {{0, 0, 1, 100, 50}, {10, 0, 1, 100, 60}};
    expect(&o, late, 2);
    o.latency_ns = 0;
    const message once[] = {{0, 0, 1, 100, 0}, {10, 1, 2, 100, 10}, {11, 1, 1, 100, 11}};
    expect(&o, once, 3);
  }
}
END_TEST

START_TEST(fair_halves_the_link) {
  /* Alone until 50: 50 bytes. Then half the rate: the first is done at 150, when the second has 50 of its 100
   * left. */
  const petra_fabric_options o = {.devices = 2, .sharing = PETRA_LINK_FAIR, .latency_ns = 5, .bandwidth_Bps = 1e9};
  const message m[] = {{0, 0, 1, 100, 155}, {50, 0, 1, 100, 205}};
  expect(&o, m, 2);
  const message equal[] = {{0, 0, 1, 100, 305}, {0, 0, 1, 100, 305}, {0, 0, 1, 100, 305}};
  expect(&o, equal, 3);
}
END_TEST

START_TEST(two_links_share_a_card) {
  petra_fabric_options o = {.devices = 3, .sharing = PETRA_LINK_FAIR, .card_Bps = 1e9};
  /* Device 1 sends up and down: both at half the card's rate until 200; then the longer one has all of it. */
  const message fair[] = {{0, 1, 2, 100, 200}, {0, 1, 0, 300, 400}};
  expect(&o, fair, 2);
  /* In and out are apart. */
  const message both[] = {{0, 1, 2, 100, 100}, {0, 2, 1, 100, 100}};
  expect(&o, both, 2);
  o.sharing = PETRA_LINK_FIFO;
  const message fifo[] = {{0, 1, 2, 100, 100}, {0, 1, 0, 300, 400}};
  expect(&o, fifo, 2);
  expect(&o, both, 2);
}
END_TEST

START_TEST(max_min_gives_the_rest_to_those_who_can_use_it) {
  /* The link 1 -> 2 (0.6) is tighter per message (0.3) than the card (1/3): 0.3, 0.3, and 0.4 for the message
   * down. */
  const petra_fabric_options o = {.devices = 3, .sharing = PETRA_LINK_FAIR, .bandwidth_Bps = 0.6e9, .card_Bps = 1e9};
  const message m[] = {{0, 1, 2, 300, 1000}, {0, 1, 2, 300, 1000}, {0, 1, 0, 200, 500}};
  expect(&o, m, 3);
}
END_TEST

START_TEST(nodes_use_no_card_inside) {
  const int32_t node[] = {0, 0, 1, 1};
  for (int sharing = PETRA_LINK_FIFO; sharing <= PETRA_LINK_FAIR; sharing++) {
    const petra_fabric_options o = {.devices = 4, .sharing = sharing, .node = node, .card_Bps = 1e9};
    const message m[] = {{0, 0, 1, 100, 0}, {0, 1, 2, 100, 100}, {3, 2, 3, 7, 3}};
    expect(&o, m, 3);
  }
}
END_TEST

/* Inside a node 2 bytes per nanosecond and 3 ns, between nodes 1 byte per nanosecond and 50 ns. */
START_TEST(a_node_has_links_of_its_own) {
  const int32_t node[] = {0, 0, 1, 1};
  for (int sharing = PETRA_LINK_FIFO; sharing <= PETRA_LINK_FAIR; sharing++) {
    petra_fabric_options o = {.devices = 4,
                              .sharing = sharing,
                              .node = node,
                              .latency_ns = 50,
                              .bandwidth_Bps = 1e9,
                              .has_node_link = true,
                              .node_latency_ns = 3,
                              .node_bandwidth_Bps = 2e9};
    const message m[] = {{0, 0, 1, 100, 53}, {0, 1, 2, 100, 150}, {1, 3, 2, 100, 54}, {2, 2, 1, 100, 152}};
    expect(&o, m, 4);
    ck_assert_int_eq(petra_fabric_alone_ns(&o, 0, 1, 100), 50);
    ck_assert_int_eq(petra_fabric_alone_ns(&o, 2, 1, 100), 100);
    ck_assert_int_eq(petra_fabric_alone_ns(&o, 1, 1, 100), 0);
    ck_assert_int_eq(petra_fabric_latency_ns(&o, 0, 1), 3);
    ck_assert_int_eq(petra_fabric_latency_ns(&o, 1, 2), 50);
    ck_assert_int_eq(petra_fabric_latency_ns(&o, 1, 1), 0);
    ck_assert_int_eq(petra_fabric_exchange_alone_ns(&o, 100), 100); /* replicas are on other nodes */
    o.card_Bps = 0.5e9;                                             /* limits only what leaves a node */
    const message slow[] = {{0, 0, 1, 100, 53}, {0, 1, 2, 100, 250}, {1, 3, 2, 100, 54}, {2, 2, 1, 100, 252}};
    expect(&o, slow, 4);
    o.node_bandwidth_Bps = o.card_Bps = 0; /* an infinite bandwidth inside */
    const message fast[] = {{0, 0, 1, 100, 3}, {0, 1, 2, 100, 150}};
    expect(&o, fast, 2);
    o.node = NULL; /* without nodes of several devices, no link is inside a node */
    const message apart[] = {{0, 0, 1, 100, 150}, {0, 1, 2, 100, 150}};
    expect(&o, apart, 2);
  }
}
END_TEST

/* Two transmissions on a link inside a node halve it, and a third one on the slower link between nodes is alone. */
START_TEST(fair_halves_the_link_of_a_node) {
  const int32_t node[] = {0, 0, 1};
  const petra_fabric_options o = {.devices = 3,
                                  .sharing = PETRA_LINK_FAIR,
                                  .node = node,
                                  .latency_ns = 50,
                                  .bandwidth_Bps = 1e9,
                                  .has_node_link = true,
                                  .node_latency_ns = 3,
                                  .node_bandwidth_Bps = 2e9};
  const message m[] = {{0, 0, 1, 100, 103}, {0, 0, 1, 100, 103}, {0, 1, 2, 100, 150}};
  expect(&o, m, 3);
}
END_TEST

/* Draws messages between neighbours in a ring and, with replicas, exchanges. */
static void draw(petra_rng *rng, int32_t devices, bool replicas, message *out, int count) {
  int64_t at_ns = 0;
  for (int i = 0; i < count; i++) {
    const int32_t from = (int32_t)petra_rng_below(rng, (uint32_t)devices);
    const int32_t step = petra_rng_below(rng, 2) ? 1 : devices - 1;
    at_ns += petra_rng_below(rng, 60);
    out[i] = (message){.at_ns = at_ns,
                       .from = from,
                       .to = replicas && petra_rng_below(rng, 4) == 0 ? REPLICAS : (from + step) % devices,
                       .bytes = petra_rng_below(rng, 8) ? petra_rng_below(rng, 100) : 0};
  }
}

/* A second level that is equal to the first changes no arrival, whatever is sent. A longer latency inside nodes is seen there alone. */
START_TEST(equal_levels_are_one) {
  enum { DEVICES = 6, TRIALS = 200, SENDS = 60 };
  petra_rng rng;
  petra_rng_init(&rng, 1, PETRA_RNG_TEST, 0, 0);
  for (int trial = 0; trial < TRIALS; trial++) {
    int32_t node[DEVICES];
    const int32_t node_size = 1 + (int32_t)petra_rng_below(&rng, DEVICES);
    for (int32_t d = 0; d < DEVICES; d++)
      node[d] = d / node_size;
    petra_fabric_options one = {.devices = DEVICES,
                                .sharing = trial % 2 ? PETRA_LINK_FAIR : PETRA_LINK_FIFO,
                                .node = node,
                                .replicas = trial % 3 == 0,
                                .event_kind = KIND,
                                .latency_ns = petra_rng_below(&rng, 40),
                                .bandwidth_Bps = trial % 5 ? 1e7 * (1 + petra_rng_below(&rng, 200)) : 0,
                                .card_Bps = trial % 4 ? 0 : 1e7 * (1 + petra_rng_below(&rng, 200))};
    petra_fabric_options two = one;
    two.has_node_link = true;
    two.node_latency_ns = one.latency_ns;
    two.node_bandwidth_Bps = one.bandwidth_Bps;
    message sends[SENDS];
    int64_t a[SENDS], b[SENDS];
    draw(&rng, DEVICES, one.replicas, sends, SENDS);
    deliver(&one, sends, SENDS, a);
    deliver(&two, sends, SENDS, b);
    for (int i = 0; i < SENDS; i++)
      ck_assert_msg(a[i] == b[i] && a[i] >= sends[i].at_ns, "trial %d: message %d arrives at %lld and at %lld", trial,
                    i, (long long)a[i], (long long)b[i]);
    two.node_latency_ns++;
    deliver(&two, sends, SENDS, b);
    for (int i = 0; i < SENDS; i++) /* transmissions are as before, so only messages inside a node are later */
      ck_assert_int_eq(b[i] - a[i], sends[i].to != REPLICAS && node[sends[i].from] == node[sends[i].to]);
  }
}
END_TEST

START_TEST(last_to_first_is_a_link_of_its_own) {
  const petra_fabric_options o = {.devices = 3, .bandwidth_Bps = 1e9};
  const message m[] = {{0, 2, 0, 100, 100}, {0, 2, 1, 100, 100}, {0, 0, 2, 100, 100}, {0, 0, 1, 100, 100}};
  expect(&o, m, 4);
}
END_TEST

START_TEST(a_transmission_of_centuries_is_refused) {
  petra_event_queue *events;
  petra_fabric *network;
  const petra_fabric_options o = {.devices = 2, .bandwidth_Bps = 1e-9};
  const petra_packet packet = {.stage = 2};
  bool arrived;
  petra_status status = PETRA_OK;
  harness_clear();
  ck_assert_int_eq(petra_event_queue_create(&events), PETRA_OK);
  ck_assert_int_eq(petra_fabric_create(&o, events, &network), PETRA_OK);
  for (int i = 0; i < 5 && status == PETRA_OK; i++) /* each is cut to 2^60 ns; the queue may not pass 2^62 */
    status = petra_fabric_send(network, 0, 0, 1, 1000000, &packet, &arrived);
  ck_assert_int_eq(status, PETRA_SCHEDULE);
  ck_assert_logged("expected more bandwidth");
  ck_assert_int_eq(harness_lines, 1);
  petra_fabric_destroy(network);
  petra_event_queue_destroy(events);
}
END_TEST

/* 100 ns up to 64 bytes, then 1 ns for two bytes, then 2 ns a byte, also beyond the last size; the latency is 100 ns. */
START_TEST(measured_times) {
  static const int64_t bytes[] = {64, 164, 264}, ns[] = {100, 150, 350};
  const petra_link_times times = {3, bytes, ns}, one = {1, bytes, ns}, falling = {2, bytes, (const int64_t[]){100, 40}};
  const petra_fabric_options o = {.devices = 3, .times = &times, .bandwidth_Bps = 1, .latency_ns = 5};
  const message m[] = {{0, 0, 1, 164, 150}, {0, 0, 1, 264, 400}, {0, 1, 0, 10, 100}, {500, 1, 2, 364, 1050}};
  expect(&o, m, 4); /* the second is on the line when the first is off it, after 50 ns */
  ck_assert_int_eq(petra_link_time_ns(&times, 114), 125);
  ck_assert_int_eq(petra_link_time_ns(&times, 0), 100);
  ck_assert_int_eq(petra_link_time_ns(&one, 1000000), 100);
  ck_assert_int_eq(petra_link_time_ns(&falling, 1000), 0);
  ck_assert_int_eq(petra_fabric_alone_ns(&o, 0, 1, 264), 250);
  ck_assert_int_eq(petra_fabric_alone_ns(&o, 1, 1, 264), 0);
}
END_TEST

/* At half the rate while something goes the other way: 50 ns or 100, 250 ns or 500, and 100 ns of latency. */
START_TEST(two_directions_slow_each_other) {
  static const int64_t bytes[] = {64, 164, 264}, ns[] = {100, 150, 350}, both_ns[] = {100, 200, 600};
  const petra_link_times times = {3, bytes, ns}, shared = {3, bytes, both_ns};
  petra_fabric_options o = {.devices = 3, .times = &times, .shared = &shared};
  /* The first one has done 50 ns of its 250 at 100, when the second is through, and 100 at 150, when the last one begins, which is
   * through at 250; then 100 are left. The third one has its link for itself. */
  const message m[] = {{0, 0, 1, 264, 450}, {0, 1, 0, 164, 200}, {0, 1, 2, 264, 350}, {150, 1, 0, 164, 350}};
  expect(&o, m, 4);
  o.shared = &times; /* as fast together as alone: lines of their own */
  const message own[] = {{0, 0, 1, 164, 150}, {0, 0, 1, 264, 400}, {0, 1, 0, 10, 100}, {500, 1, 2, 364, 1050}};
  expect(&o, own, 4);
  const message wrap[] = {{0, 2, 0, 164, 200}, {0, 0, 2, 164, 200}, {0, 1, 2, 164, 150}};
  o.shared = &shared; /* the last device and the first are a pair */
  expect(&o, wrap, 3);
  ck_assert_int_eq(petra_fabric_alone_ns(&o, 0, 1, 264), 250);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {fifo_queues_and_latency_overlaps,
                                without_bandwidth_only_latency,
                                fair_halves_the_link,
                                two_links_share_a_card,
                                max_min_gives_the_rest_to_those_who_can_use_it,
                                nodes_use_no_card_inside,
                                a_node_has_links_of_its_own,
                                fair_halves_the_link_of_a_node,
                                equal_levels_are_one,
                                measured_times,
                                two_directions_slow_each_other,
                                last_to_first_is_a_link_of_its_own,
                                a_transmission_of_centuries_is_refused};
  return harness_run("link", tests, HARNESS_COUNT(tests));
}
