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

/* cuDNN's notes about an engine's arithmetic, as bits. */
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

/* Creates the plans with a handle of the current device or, if `deviceprop` (a device's properties as cuDNN writes them
 * in JSON) is not NULL, for that device, without a GPU: such plans can be made and queried, not run. cuDNN's workspaces
 * have at most `workspace_max` bytes; converted data come on top. `deterministic`: excludes plans that cuDNN notes as
 * nondeterministic. Always excludes plans that convert inputs down, sum in less than f32, or transform (Winograd, FFT);
 * in fp32 also those that use tensor cores. Errors: PETRA_BACKEND without a device and with `deviceprop` NULL. */
petra_status cuda_plans_create(const char *deviceprop, bool deterministic, size_t workspace_max, cuda_plans **out);
void cuda_plans_destroy(cuda_plans *plans);

/* The kinds (bits 1 << cuda_conv_kind) whose wide shapes, of those found from now on, may be one graph; at first the
 * forward pass and the data gradient. For a filter gradient it would save a launch over a small output and cost, on an
 * H100, the engine made for the device: for the graph there is only a general one. Not measured. */
void cuda_plans_fuse(cuda_plans *plans, unsigned kinds);

/* From now on shapes use the configurations that `file` names (plan_private.h), and others are measured: of the first 8
 * that work, over all forms of a wide shape, each runs on temporarily allocated device memory, once and then three
 * times; the one with the smallest median is chosen (among equals the first) and added to the file. Measuring waits for
 * everything that the device does. cuda_plans_find does it when operations are described, never within the capture of a
 * CUDA graph. If cuDNN has something else than the file's configuration at its place, a line says so and the shape is
 * measured again; if the device does not have the memory for measuring, a line says so once, and heuristics choose.
 * Errors: those of cuda_plan_table_open. Call it once, before any plan is found. */
petra_status cuda_plans_measure(cuda_plans *plans, const char *file);

/* Writes the choices of the shapes that were found, measured now or before, as a file for cuda_plans_measure; nothing
 * without it. */
void cuda_plans_print(const cuda_plans *plans, FILE *out);

/* Finds the plan for a shape. The first call makes it by cuDNN's heuristics: the first engine configuration that
 * finalizes, has the wanted notes and fits; for a wide shape one with as much in the graph as possible. Or by
 * measuring, see above. It lives as long as `plans`. Errors: PETRA_UNSUPPORTED, logged with the shape, if there is
 * none. */
petra_status cuda_plans_find(cuda_plans *plans, const cuda_conv_shape *shape, const cuda_plan **out);

size_t cuda_plan_workspace(const cuda_plan *plan);

/* Returns the number of our launches around cuDNN's in a run: 0 to 2. */
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
