/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel as the cost models see it: plain numbers that the blocks (src/nn) pass to the roofline (sim). */
#pragma once

#include <stdbool.h>

/* The pass that a kernel belongs to. */
typedef enum petra_kernel_part {
  PETRA_KERNEL_FORWARD,
  PETRA_KERNEL_BACKWARD,        /* except for the next part */
  PETRA_KERNEL_WEIGHT_GRADIENT, /* the part of the backward that W does if the program splits it off */
  PETRA_KERNEL_UPDATE
} petra_kernel_part;

typedef struct petra_kernel {
  petra_kernel_part part;
  bool rebuilt;        /* forward: repeated when its graph is rebuilt */
  bool matrix;         /* runs on the units for convolutions and products; else elementwise */
  double flops, bytes; /* bytes: read and written */
  /* The part of `flops` outside matrix products, although the kernel computes products (a softmax). */
  double beside;
} petra_kernel;
