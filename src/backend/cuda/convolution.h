/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by cuDNN's backend (graph) API: plans are made once for each shape and kept. Only plan.c and
 * plan_graph.c include cuDNN's headers. A shape uses the configuration that cuDNN's heuristics name first, or the
 * one that was measured (cuda_plans_measure). */
#pragma once

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
 * tensors of f32. In bf16 all three are bf16 except those for which a `wide_` member is set; the products always
 * multiply bf16, and sums are f32. Bytes that are not set here must be 0, because shapes are compared byte by byte. */
typedef struct cuda_conv_shape {
  int32_t kind;      /* cuda_conv_kind */
  int32_t precision; /* petra_precision */
  int32_t n, c, h, w, o, kh, kw, stride, pad, oh, ow;
  int32_t wide_in;  /* bf16, not in a data gradient: x is f32, and rounded to bf16 (to nearest even) as it is read */
  int32_t wide_out; /* bf16: the output is f32 */
} cuda_conv_shape;

typedef struct cuda_plans cuda_plans; /* all plans of a backend */
typedef struct cuda_plan cuda_plan;

/* cuDNN's notes about an engine's arithmetic, as bits. */
enum {
  CUDA_PLAN_NOTE_TENSOR_CORES = 1,
  CUDA_PLAN_NOTE_NONDETERMINISTIC = 2,
  CUDA_PLAN_NOTE_DOWN_CONVERTS = 4, /* inputs are converted to a smaller type than the precision's */
  CUDA_PLAN_NOTE_REDUCED_SUMS = 8,  /* sums in less than f32 */
  CUDA_PLAN_NOTE_WINOGRAD = 16,
  CUDA_PLAN_NOTE_FFT = 32
};

/* A wide shape can be run in two ways. In the first, one cuDNN graph does everything, with an engine that is compiled
 * for it when the plan is made (0.3 to 2 s on one core); the sum is then written without rounding. If cuDNN has no such
 * engine, kernels of our own convert before and after a plain bf16 plan: its output is rounded to bf16 once and then
 * widened. cuDNN 9.19, queried without a device, has no such engine for a filter gradient that rounds x, nor for 3
 * channels (except for their forward pass with a wide output); if the process finds no `libcuda`, it has none at
 * all. */

/* Creates the plans with a handle of the current device or, if `deviceprop` (a device's properties as cuDNN writes them
 * in JSON) is not NULL, for that device, without a GPU: such plans can be made and queried, not run. cuDNN's workspaces
 * have at most `workspace_max` bytes; converted data come on top. `deterministic`: excludes plans that cuDNN notes as
 * nondeterministic. Always excludes plans that convert inputs down, sum in less than f32, or transform (Winograd, FFT);
 * in fp32 also those that use tensor cores. Errors: PETRA_BACKEND without a device and with `deviceprop` NULL. */
petra_status cuda_plans_create(const char *deviceprop, bool deterministic, size_t workspace_max, cuda_plans **out);
void cuda_plans_destroy(cuda_plans *plans);

/* Sets the kinds (bits 1 << cuda_conv_kind) whose wide shapes may become one graph, for shapes found from now on;
 * initially the forward pass and the data gradient. For a filter gradient one graph would save a launch over a small
 * output, but on an H100 it could not use the engine made for that device, only a general one. This has not been
 * measured. */
void cuda_plans_fuse(cuda_plans *plans, unsigned kinds);

/* From now on shapes that `file` contains use its configurations (plan_private.h), and other shapes are measured. The
 * first 8 configurations that work (over all forms of a wide shape) each run once and then three more times, on
 * temporarily allocated device memory; the one with the smallest median (the first of equals) is chosen and added to
 * the file. Measuring waits for everything that the device does. cuda_plans_find does it when operations are described,
 * never within the capture of a CUDA graph. If cuDNN now has another configuration at the place that the file records,
 * a line says so and the shape is measured again. If the device has too little memory for measuring, a line says so
 * once, and the heuristics choose. Errors: those of cuda_plan_table_open. Call it once, before any plan is found. */
petra_status cuda_plans_measure(cuda_plans *plans, const char *file);

/* Writes the choices for all shapes found so far, whether measured now or read from the file, in the format of
 * cuda_plans_measure's file; writes nothing if that was not called. */
void cuda_plans_print(const cuda_plans *plans, FILE *out);

/* Finds the plan for a shape. The first call for a shape makes the plan, by measuring (see above) or by cuDNN's
 * heuristics. These take the first engine configuration that finalizes, has the wanted notes and fits; for a wide
 * shape, one with as many conversions in the graph as possible. It lives as long as `plans`. Errors: PETRA_UNSUPPORTED,
 * logged with the shape, if there is none. */
petra_status cuda_plans_find(cuda_plans *plans, const cuda_conv_shape *shape, const cuda_plan **out);

size_t cuda_plan_workspace(const cuda_plan *plan);

/* Returns how many conversion kernels of our own a run launches before and after cuDNN's: 0 to 2. */
int cuda_plan_conversions(const cuda_plan *plan);

/* For tests: queries cuDNN again for the notes of the plan's engine. */
petra_status cuda_plan_notes(const cuda_plan *plan, unsigned *notes);

/* Describes the plan for tables and tests: "engine 33, 4.2 MiB workspace, tensor cores, rounded before, widened
 * after". */
void cuda_plan_describe(const cuda_plan *plan, char *text, size_t size);

/* Runs the plan on the lane, including conversions. The workspace is the lane's scratch, of at least
 * cuda_plan_workspace bytes. x, w, y as in the shape, each aligned to 16 bytes; the kind decides which is the output.
 * Waits for nothing, allocates no device memory, and may be captured into a CUDA graph. */
petra_status cuda_plan_run(const cuda_plan *plan, const cuda_lane *lane, const void *x, const void *w, const void *y);

/* Describes the library: "cuDNN 9.19.0". */
void cuda_plans_describe(char *text, size_t size);
