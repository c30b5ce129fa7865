/* The inside of a stage, shared by the files of src/stage. */
#ifndef PETRA_STAGE_STAGE_PRIVATE_H
#define PETRA_STAGE_STAGE_PRIVATE_H

#include "stage/record.h"
#include "stage/stage.h"

/* The tensors of one block. */
typedef struct petra_stage_sets {
  petra_tensor_set parameters, statistics, velocities;
  petra_tensor_set gradients;   /* of the last microbatch */
  petra_tensor_set accumulated; /* mean over the microbatches counted since the last update; k > 1 only */
} petra_stage_sets;

struct petra_stage {
  petra_stage_options options;
  petra_compute compute;
  petra_account account;
  int blocks;
  petra_stage_sets *sets; /* per block */
  petra_record_queue records;
  int counted;     /* backward passes since the last update */
  int64_t updates; /* the version of the weights */
};

/* Block `b` (from 0) of the stage. */
const petra_block *petra_stage_block(const petra_stage *stage, int b);

#endif
