/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by cuDNN's backend (graph) API: plans, made once for each shape and kept. plan.c, plan_graph.c and
 * plan_search.c alone include cuDNN's headers. Which configuration of cuDNN's a shape takes is what its heuristics name first, or
 * what was measured (cuda_plans_measure). */
#ifndef PETRA_BACKEND_CUDA_CONVOLUTION_H
#define PETRA_BACKEND_CUDA_CONVOLUTION_H

#include "backend/cuda/lane.h"
#include "config/config.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum cuda_conv_kind {
  CUDA_CONV_FORWARD, /* y from x, w */
  CUDA_CONV_DATA,    /* x (that is dx) from y (dy), w */
  CUDA_CONV_FILTER,  /* w (that is dw) from x, y (dy) */
} cuda_conv_kind;

/* x (n, h, w, c), filter (o, kh, kw, c), y (n, oh, ow, o): dense, channels last. Precision fp32 (strict), tf32:
 * tensors of f32. bf16: all three are bf16, but those that `wide_` names, and what is multiplied is bf16 always; sums
 * are f32. All zero bytes where nothing is said: shapes are compared by bytes. */
typedef struct cuda_conv_shape {
  int32_t kind;      /* cuda_conv_kind */
  int32_t precision; /* petra_precision */
  int32_t n, c, h, w, o, kh, kw, stride, pad, oh, ow;
  int32_t wide_in;  /* bf16, not in a data gradient: x is f32, and rounded to bf16 (to nearest even) as it is read */
  int32_t wide_out; /* bf16: the output is f32 */
} cuda_conv_shape;

typedef struct cuda_plans cuda_plans; /* all plans of a backend */
typedef struct cuda_plan cuda_plan;

/* What cuDNN notes about an engine's arithmetic, as bits. */
enum {
  CUDA_PLAN_NOTE_TENSOR_CORES = 1,
  CUDA_PLAN_NOTE_NONDETERMINISTIC = 2,
  CUDA_PLAN_NOTE_DOWN_CONVERTS = 4, /* inputs, below the precision's type */
  CUDA_PLAN_NOTE_REDUCED_SUMS = 8,  /* sums in less than f32 */
  CUDA_PLAN_NOTE_WINOGRAD = 16,
  CUDA_PLAN_NOTE_FFT = 32
};

/* Wide shapes have two ways. One graph of cuDNN does all, by an engine that is compiled for it when the plan is made
 * (0.3 to 2 s of a core); the sum is then written as it is. Where cuDNN has none, launches of ours convert around a
 * plain bf16 plan: what it writes is rounded to bf16 once, then widened. cuDNN 9.19, asked without a device: none for a
 * filter gradient that rounds x, nor for 3 channels but their forward pass with a wide output; and none at all where
 * the process finds no `libcuda`. */

/* With a handle of the present device; where `deviceprop` is not NULL (a device's properties as cuDNN writes them in
 * JSON) for that device, without a GPU: such plans can be made and asked, not run. cuDNN's workspaces are at most
 * `workspace_max` bytes; what is converted comes on top. `deterministic`: plans that cuDNN notes as nondeterministic
 * are not taken. In no precision those that convert inputs down, sum in less than f32, or transform (Winograd, FFT); in
 * fp32 none that uses tensor cores. Without a device and `deviceprop` NULL: PETRA_BACKEND. */
petra_status cuda_plans_create(const char *deviceprop, bool deterministic, size_t workspace_max, cuda_plans **out);
void cuda_plans_destroy(cuda_plans *plans);

/* The kinds (bits 1 << cuda_conv_kind) whose wide shapes, of those found from now on, may be one graph; at first the
 * forward pass and the data gradient. For a filter gradient it would save a launch over a small output and cost, on an
 * H100, the engine made for the device: for the graph there is only a general one. Not measured. */
void cuda_plans_fuse(cuda_plans *plans, unsigned kinds);

/* From now on shapes take the configurations that `file` names (plan_private.h), and others are measured: of the first 8 that serve, over
 * all forms of a wide shape, each is run on device memory that is taken for the time, once and then three times; the one with the least
 * median is taken, of equals the first, and it is added to the file. That waits for all that the device does, and is
 * done by cuda_plans_find: when operations are described, never within the capture of a CUDA graph. Where a configuration of the file
 * is not what cuDNN has in that place, a line says so and the shape is measured anew; where the device has no room for measuring, a
 * line says so once, and heuristics choose. Errors: those of cuda_plan_table_open. To be called once, before anything is found. */
petra_status cuda_plans_measure(cuda_plans *plans, const char *file);

/* The choices of the shapes that were found, measured now or before, as a file that cuda_plans_measure takes; nothing without it. */
void cuda_plans_print(const cuda_plans *plans, FILE *out);

/* The plan for a shape, made at the first call by cuDNN's heuristics: the first engine configuration that finalizes,
 * has the wanted notes and fits; of a wide shape one for as much in the graph as there is any. Or by measuring, see above.
 * PETRA_UNSUPPORTED, logged with the shape, when there is none. It lives as long as `plans`. */
petra_status cuda_plans_find(cuda_plans *plans, const cuda_conv_shape *shape, const cuda_plan **out);

size_t cuda_plan_workspace(const cuda_plan *plan);

/* How many launches of ours a run has around cuDNN's: 0 to 2. */
int cuda_plan_conversions(const cuda_plan *plan);

/* The notes of the plan's engine, asked of cuDNN anew: for tests. */
petra_status cuda_plan_notes(const cuda_plan *plan, unsigned *notes);

/* "engine 33, 4.2 MiB workspace, tensor cores, rounded before, widened after": for tables and tests. */
void cuda_plan_describe(const cuda_plan *plan, char *text, size_t size);

/* Runs it on the lane, conversions included; the workspace is the lane's scratch, of at least cuda_plan_workspace
 * bytes. x, w, y as in the shape, each aligned to 16 bytes; the output is the one that the kind says. Waits for nothing,
 * takes no device memory, and may be captured into a CUDA graph. */
petra_status cuda_plan_run(const cuda_plan *plan, const cuda_lane *lane, const void *x, const void *w, const void *y);

/* "cuDNN 9.19.0". */
void cuda_plans_describe(char *text, size_t size);

#endif
