/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between stages. There is one link per direction and boundary, with latency and bandwidth; links between
 * nodes share the network cards of their nodes. Sends never block. There are two ways of sharing:
 *  - fifo: a transmission occupies its link, and the cards at both ends, alone. The next one in the queue starts when
 *    all of its resources are free. Queues are in the order of sends. A transmission lasts bytes / (smallest bandwidth
 *    on its path). If the profile has measured how long a message takes alone, and how long with a message of the same
 *    size in the other direction, the two directions between two devices slow each other down (link.c).
 *  - fair: all concurrent transmissions share each link and card max-min fairly (progressive filling); rates change
 *    whenever one starts or ends.
 * Latency follows the transmission and overlaps with the next one. Between stages of one device a message takes no
 * time. Links between the devices of a node may have a latency and a bandwidth of their own (cluster.node_link).
 *
 * Replicas (cluster.replicas): every device has one more link in each direction, to the same device of the other
 * replicas. The other replicas do the same at the same time, on their own nodes, so the same number of bytes goes each
 * way. If times were measured, the times with a message in the other direction apply. */
#pragma once

#include "config/config.h"
#include "schedule/action.h"
#include "sim/engine.h"
#include "sim/cycle.h"

/* Measured times of messages from one end to the other, by size: linear between the sizes and beyond the largest size;
 * constant below the smallest size, whose time is the latency. */
typedef struct petra_link_times {
  int32_t count;        /* >= 1 */
  const int64_t *bytes; /* rising */
  const int64_t *ns;
} petra_link_times;

typedef struct petra_fabric_options {
  int32_t devices; /* counted from 0 here */
  /* The device of each stage, from 1 (petra_program_options), which determines the pairs of devices that exchange
   * messages; NULL: a loop. Borrowed. */
  const int32_t *device_of;
  int32_t stages;
  petra_link_sharing sharing;
  int64_t latency_ns;   /* of links between devices */
  double bandwidth_Bps; /* of each link; 0: infinite */
  /* Links between devices of one node have the latency and the bandwidth below instead. */
  bool has_node_link;
  int64_t node_latency_ns;
  double node_bandwidth_Bps; /* 0: infinite */
  /* Measured times of links between devices, which replace latency, bandwidth and cards; fifo. NULL: not measured.
   * Borrowed. */
  const petra_link_times *times;
  /* Times with a message of the same size in the other direction at the same time; NULL: the same as `times`. */
  const petra_link_times *shared;
  const int32_t *node; /* per device, from 0; NULL: every device is a node of its own */
  double card_Bps;     /* of a node's card, in each direction; 0: infinite. Links within a node do not use it */
  bool replicas;       /* devices have links to their replicas */
  int event_kind;      /* kind of the events that the fabric pushes and petra_fabric_event takes */
} petra_fabric_options;

/* Returns the time of a message of `bytes`. */
int64_t petra_link_time_ns(const petra_link_times *times, int64_t bytes);

typedef struct petra_fabric petra_fabric;

/* *out is NULL before; destroy it even on failure. */
petra_status petra_fabric_create(const petra_fabric_options *options, petra_event_queue *events, petra_fabric **out);
void petra_fabric_destroy(petra_fabric *fabric);

/* Sends `bytes` from device to device (neighbours or not) at `now_ns`. *arrived: the message has arrived immediately
 * and no event will follow. */
petra_status petra_fabric_send(petra_fabric *fabric, int64_t now_ns, int32_t from, int32_t to, int64_t bytes,
                               const petra_packet *packet, bool *arrived);

/* Starts the exchange of a device with its replicas, in which it sends and receives `bytes`: one transmission on its
 * link to them and, in both directions, its node's card, followed by two latencies, since pieces travel to the replica
 * that sums them and their means come back. */
petra_status petra_fabric_exchange(petra_fabric *fabric, int64_t now_ns, int32_t device, int64_t bytes,
                                   const petra_packet *packet, bool *arrived);

/* Handles an event of options.event_kind. *arrived: `packet` has arrived now. */
petra_status petra_fabric_event(petra_fabric *fabric, const petra_event *event, petra_packet *packet, bool *arrived);

/* Gives the messages on the way and the queues to a cycle. */
void petra_fabric_state(const petra_fabric *fabric, petra_cycle *cycle);

/* Gives the microbatch of an event of options.event_kind to a cycle; returns false if the event has no effect, because
 * rates have changed since. */
bool petra_fabric_event_state(const petra_fabric *fabric, const petra_event *event, petra_cycle *cycle);

/* Returns how long a transmission of `bytes` between two devices lasts if it has its link and cards for itself; 0
 * within a device. The remainder of a message's time, beyond this and the latency, is queueing: it waited for its turn
 * (fifo) or shared (fair). */
int64_t petra_fabric_alone_ns(const petra_fabric_options *options, int32_t from, int32_t to, int64_t bytes);
/* Returns the latency of a message between two devices; 0 within a device. */
int64_t petra_fabric_latency_ns(const petra_fabric_options *options, int32_t from, int32_t to);
int64_t petra_fabric_exchange_alone_ns(const petra_fabric_options *options, int64_t bytes);
