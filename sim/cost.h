/* SPDX-License-Identifier: Apache-2.0 */
/* Costs: how long the actions of each stage take on the virtual clock, and how many bytes its messages have. */
#pragma once

#include "base/kernel.h"
#include "config/config.h"
#include "schedule/action.h"

#include <stdbool.h>
#include <stdint.h>

/* The parts of a stage's work for one microbatch. */
enum { PETRA_COST_PARTS = 5 };
typedef struct petra_stage_cost {
  union {
    struct {
      int64_t forward_ns;         /* F */
      int64_t backward_ns;        /* B without reconstruction: both gradients */
      int64_t reconstruct_ns;     /* reconstruction or recomputation inside B */
      int64_t weight_gradient_ns; /* the part of backward_ns that W does if the program splits it off */
      int64_t update_ns;          /* U */
    };
    int64_t ns[PETRA_COST_PARTS]; /* all parts, as an array */
  };
  int64_t forward_bytes;  /* message to the stage above */
  int64_t backward_bytes; /* message to the stage below */
  int64_t gradient_bytes; /* bytes that the replicas of the stage average before an update */
} petra_stage_cost;

/* Determines how a method combines the parts. */
typedef struct petra_cost_rule {
  bool recomputes;     /* B reconstructs or recomputes first */
  bool split_backward; /* W is an action of its own */
  bool fused_head;     /* the last stage does F, loss and B in one action and recomputes nothing */
  /* Recomputation need not wait for the gradient: time for which the engine was idle before B counts as already spent
   * on the recomputation. The first microbatch of each accumulation is not recomputed at all, since its graph is kept
   * (torchgpipe). */
  bool early;
} petra_cost_rule;

/* Scales the costs to a device of `speed` > 0: divides every duration by it and rounds to a nanosecond. Message sizes
 * stay the same. Errors: PETRA_CONFIG if a duration reaches 9e9 s. */
petra_status petra_cost_scale(petra_stage_cost *cost, double speed);

/* Computes the duration of each kind of action of a stage. Evaluations take no virtual time. */
void petra_cost_durations(const petra_stage_cost *cost, const petra_cost_rule *rule, bool last,
                          int64_t duration_ns[PETRA_ACTION_KINDS]);

/* Does the same for `stages` stages, with one cost per stage or (`count` 1) one cost for all. Free *out with
 * petra_free. */
petra_status petra_cost_all_durations(const petra_stage_cost *costs, int32_t count, const petra_cost_rule *rule,
                                      int32_t stages, int64_t (**out)[PETRA_ACTION_KINDS]);

/* Returns how many bytes each of `replicas` replicas sends, and receives, in an all-reduce that gives all of them the
 * mean of `bytes` bytes. The data are cut into one piece per replica. Each replica sends every other piece to the
 * replica that owns it, and then sends the mean of its own piece to all others. */
static inline int64_t petra_cost_exchange_bytes(int32_t replicas, int64_t bytes) {
  return 2 * (int64_t)(replicas - 1) * ((bytes + replicas - 1) / replicas);
}

/* Converts seconds to nanoseconds, rounded. The caller checks the range (0 .. 1e9 s). */
int64_t petra_nanoseconds(double seconds);

/* --- the roofline --- */

/* The roofline: the cost of work on a named device, from the FLOPs and the bytes of its kernels and the device's peaks.
 * A kernel takes max(FLOPs / peak, bytes / bandwidth); kernels follow one another, so that a stage's time is the sum.
 * This is a lower bound: no launch overhead, no cache, perfect overlap of memory and arithmetic. With
 * petra_kernel_rates it is a model that can be calibrated. Its inputs are plain numbers: petra_block_kernels (src/nn)
 * counts the kernels of a block. Elementwise kernels run on the vector units; their few FLOPs never determine the time
 * on the devices here. */

/* Peaks from data sheets; they are dense peaks (without structured sparsity). */
typedef struct petra_device_peaks {
  const char *name;
  /* FLOP/s of convolutions and products; 0: the device has no such units. */
  double matrix_flops[PETRA_COST_ARITHMETICS];
  double vector_flops;  /* FLOP/s of elementwise kernels, fp32 */
  double bandwidth_Bps; /* of the device's memory */
  double memory_bytes;  /* size of that memory; a GB of a data sheet is 1e9 bytes; 0: not known */
  const char *source;
} petra_device_peaks;

/* Returns a device of cluster.cost.device (petra_cost_device); NULL if there is none with that number. */
const petra_device_peaks *petra_device_peaks_at(int index);

/* The shares of a device's peaks that kernels reach, and the launch time of a kernel. */
typedef struct petra_kernel_rates {
  double launch_s;          /* time that every kernel takes before it does anything */
  double matrix_flops;      /* share of the FLOP peak that convolutions and products reach; > 0 */
  double matrix_bytes;      /* share of the memory bandwidth that convolutions and products reach; > 0 */
  double elementwise_bytes; /* share of the memory bandwidth that all other kernels reach; > 0 */
} petra_kernel_rates;

/* The rates of the lower bound: no launch time, the peaks themselves. */
#define PETRA_KERNEL_RATES_BOUND ((petra_kernel_rates){0, 1, 1, 1})

typedef struct petra_roofline_seconds {
  double forward;         /* F */
  double backward;        /* B without reconstruction */
  double reconstruct;     /* reconstruction or recomputation; 0 for the head */
  double weight_gradient; /* the part of backward that W does if the program splits it off */
  double update;          /* U */
} petra_roofline_seconds;

/* Adds the times of `count` kernels to *sum: launch + max(FLOPs / (share * peak), bytes / (share * bandwidth)) each, or
 * only the launch if `device` is NULL. PETRA_CONFIG if the device has no units for the arithmetic, a count is negative
 * or not finite, or bytes flow over no bandwidth; *sum then stays unchanged. */
petra_status petra_roofline_add(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                const petra_kernel_rates *rates, const petra_kernel *kernels, int count,
                                petra_roofline_seconds *sum);

/* Sets the durations of `cost` from the seconds; its message sizes stay the same. */
void petra_roofline_cost(const petra_roofline_seconds *seconds, petra_stage_cost *cost);
