/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel as a cost model prices it: plain numbers between the blocks that do the work (src/nn) and the roofline (sim). */
#ifndef PETRA_BASE_KERNEL_H
#define PETRA_BASE_KERNEL_H

#include <stdbool.h>

/* The pass that a kernel belongs to. */
typedef enum petra_kernel_part {
  PETRA_KERNEL_FORWARD,
  PETRA_KERNEL_BACKWARD,        /* but for what follows */
  PETRA_KERNEL_WEIGHT_GRADIENT, /* the part of the backward that W takes where the program splits it off */
  PETRA_KERNEL_UPDATE
} petra_kernel_part;

typedef struct petra_kernel {
  petra_kernel_part part;
  bool again;          /* of the forward: done once more where its graph is rebuilt */
  bool matrix;         /* on the units for convolutions and products; else elementwise */
  double flops, bytes; /* bytes: what it reads and writes */
  double beside;       /* of flops: those of no product, which a kernel of products does besides (a softmax) */
} petra_kernel;

#endif
