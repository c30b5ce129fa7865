/* SPDX-License-Identifier: Apache-2.0 */
/* Which configuration of cuDNN's each shape takes: choices that were measured, kept in a file of text.
 *
 *   petra plans 1
 *   library: cuDNN 9.19.0
 *   device: NVIDIA H100 80GB HBM3
 *   deterministic: true
 *   forward, x 64x32x32x3, filter 64x3x3x3, stride 1, pad 1, tf32: rounds 0, widens 0, heuristics a, rank 3, engine 33, 41.250 us
 *
 * and so on, one line a shape. It serves one version of cuDNN, one kind of device and one device.deterministic alone. */
#ifndef PETRA_BACKEND_CUDA_PLAN_TABLE_H
#define PETRA_BACKEND_CUDA_PLAN_TABLE_H

#include "backend/cuda/convolution.h"

#include <stdio.h>

/* Which of a wide shape's conversions are in cuDNN's graph; the others are launches of ours. */
typedef struct cuda_conv_form {
  bool rounds; /* x f32 -> bf16 */
  bool widens; /* the sum f32 -> the output as it is */
} cuda_conv_form;

/* Where cuDNN's heuristics had a configuration. */
typedef struct cuda_plan_place {
  int mode; /* of CUDA_PLAN_MODES: A, B, fallback */
  int rank; /* the how-manieth of the mode, from 0 */
} cuda_plan_place;
enum { CUDA_PLAN_MODES = 3 };

typedef struct cuda_plan_choice {
  cuda_conv_form form;
  cuda_plan_place place;
  int64_t engine; /* the global index of the engine there */
  double us;      /* microseconds that a run took, conversions included; to be kept to three decimals */
  bool used;      /* by this backend; in no file */
} cuda_plan_choice;

/* What a file's choices hold for: its lines after the first. */
typedef struct cuda_plan_setting {
  char library[64], device[256];
  bool deterministic;
} cuda_plan_setting;

typedef struct cuda_plan_table cuda_plan_table;

/* "forward, x 64x32x32x3, filter 64x3x3x3, stride 1, pad 1, bf16, x f32, output f32": of every line about a shape. */
typedef struct cuda_shape_text {
  char text[192];
} cuda_shape_text;
cuda_shape_text cuda_shape_describe(const cuda_conv_shape *shape);

/* The choices of the file; none where it is not there, and then its folder has to be. PETRA_CONFIG, logged with both, where it was
 * measured in another setting; PETRA_DATA, with the number of the line, where it is damaged; PETRA_IO; PETRA_NO_MEMORY. */
petra_status cuda_plan_table_open(const char *path, const cuda_plan_setting *setting, cuda_plan_table **out);
void cuda_plan_table_destroy(cuda_plan_table *table);

const char *cuda_plan_table_path(const cuda_plan_table *table);

/* NULL: there is none. Until the next put. */
cuda_plan_choice *cuda_plan_table_find(cuda_plan_table *table, const cuda_conv_shape *shape);

/* Adds the choice, or replaces that of the shape. PETRA_NO_MEMORY. */
petra_status cuda_plan_table_put(cuda_plan_table *table, const cuda_conv_shape *shape, const cuda_plan_choice *choice);

/* As a file has it: those that were used, or all. */
void cuda_plan_table_print(const cuda_plan_table *table, bool all, FILE *out);

/* Replaces the file whole or not at all, if anything was put since it was opened; what others have added to it meanwhile is kept. The
 * errors of open, with the file as it was. */
petra_status cuda_plan_table_write(cuda_plan_table *table);

#endif
