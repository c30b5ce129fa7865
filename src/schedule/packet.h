/* The address of a message between stages: what it is for its receiver. */
#ifndef PETRA_SCHEDULE_PACKET_H
#define PETRA_SCHEDULE_PACKET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct petra_packet {
  int32_t stage; /* the receiving stage, from 1 */
  bool backward; /* it comes from above */
  int64_t microbatch;
} petra_packet;

#endif
