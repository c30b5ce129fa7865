/* Messages between stages. One link per direction and boundary, with latency and bandwidth; links between nodes share their
 * nodes' network cards. Sends never block. Two ways of sharing:
 *  - fifo: a transmission occupies its link, and the cards at both ends, alone; the next one in line starts when all of
 *    its are free; lines are in the order of sends. It lasts bytes / (smallest bandwidth on its way).
 *  - fair: all transmissions under way share each link and card max-min fairly (progressive filling), rates change whenever
 *    one starts or ends.
 * Latency comes after the transmission and overlaps with the next one. Between stages of one device a message takes no time. */
#ifndef PETRA_SIM_LINK_H
#define PETRA_SIM_LINK_H

#include "sim/engine.h"

typedef enum petra_sharing { PETRA_SHARING_FIFO, PETRA_SHARING_FAIR } petra_sharing;

typedef struct petra_network_options {
  int32_t devices; /* from 0 here */
  petra_sharing sharing;
  int64_t latency_ns;   /* of links between devices */
  double bandwidth_Bps; /* of each link; 0: infinite */
  const int32_t *node;  /* per device, from 0; NULL: every device is a node of its own */
  double card_Bps;      /* of a node's card, in each direction; 0: infinite. Links inside a node do not use it */
  int event_kind;       /* of the events that the network pushes and petra_network_event takes */
} petra_network_options;

/* What a message is for the receiver. */
typedef struct petra_packet {
  int32_t stage; /* the receiving stage */
  bool backward; /* it comes from above */
  int64_t microbatch;
} petra_packet;

typedef struct petra_network petra_network;

petra_status petra_network_create(const petra_network_options *options, petra_event_queue *events, petra_network **out);
void petra_network_destroy(petra_network *network);

/* Sends `bytes` from device to device (neighbours or not) at `now_ns`. *arrived: it is there at once and no event
 * will come. */
petra_status petra_network_send(petra_network *network, int64_t now_ns, int32_t from, int32_t to, int64_t bytes,
                                const petra_packet *packet, bool *arrived);

/* Takes an event of options.event_kind. *arrived: `packet` has arrived now. */
petra_status petra_network_event(petra_network *network, const petra_event *event, petra_packet *packet, bool *arrived);

/* How long the transmission of `bytes` between two devices lasts that has its link and cards for itself; 0 inside a
 * device. What a message takes beyond this and the latency is queueing: it waited for its turn (fifo) or shared
 * (fair). */
int64_t petra_network_alone_ns(const petra_network_options *options, int32_t from, int32_t to, int64_t bytes);

/* Bytes sent so far over the link between two neighbouring devices, up (from -> from + 1) or down. */
int64_t petra_network_bytes(const petra_network *network, int32_t lower_device, bool up);

#endif
