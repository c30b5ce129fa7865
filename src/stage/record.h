/* What a stage keeps of a microbatch between its forward and its backward; a queue of them, oldest first. */
#ifndef PETRA_STAGE_RECORD_H
#define PETRA_STAGE_RECORD_H

#include "nn/graph.h"

typedef struct petra_record {
  int64_t microbatch;
  petra_streams *inputs;     /* per block; empty where nothing is kept */
  petra_block_graph *graphs; /* per block */
} petra_record;

typedef struct petra_record_queue {
  int blocks;
  int capacity, head, count, count_max;
  petra_record *ring;
} petra_record_queue;

petra_status petra_record_queue_init(petra_record_queue *queue, int blocks);
void petra_record_queue_fini(petra_record_queue *queue);

/* Appends an empty record and lends it until it is popped. */
petra_status petra_record_push(petra_record_queue *queue, int64_t microbatch, petra_record **out);

/* The oldest record, which must be that of `microbatch` (else PETRA_INTERNAL, logged with the stage's number). */
petra_status petra_record_oldest(petra_record_queue *queue, int stage, int64_t microbatch, petra_record **out);

/* Drops the newest (a failed forward) or the oldest record and what it holds. */
void petra_record_drop_newest(petra_record_queue *queue);
void petra_record_drop_oldest(petra_record_queue *queue);

#endif
