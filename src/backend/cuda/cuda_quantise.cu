/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats of messages and kept inputs (backend/quantise.h). If the format has a scale, a block quantises a
 * sample; a thread writes the codes of eight elements, which fill whole bytes. */
#include "backend/cuda/cuda_device.h"
#include "backend/element.h"

enum { CUDA_CODES = 8, CUDA_DRAWS = 4 /* random words of one step of the generator */ };

/* Returns the position of element `i` of the logical order of a sample. */
PETRA_DEVICE int64_t cuda_place_in_sample(int32_t c, int64_t plane, int64_t i) {
  return i % plane * c + i / plane;
}

/* Gets random words 4 step .. 4 step + 3 of a sample, the words of base/rng.c: Philox4x32 with ten rounds. (The headers
 * of Random123 need exceptions in C++.) */
PETRA_DEVICE void cuda_draw(const petra_draws *draws, int64_t sample, int64_t step, uint32_t words[CUDA_DRAWS]) {
  const uint64_t index = (uint64_t)draws->microbatch * PETRA_DRAWS_SAMPLES + (uint64_t)(draws->first_sample + sample);
  uint32_t key[2] = {(uint32_t)draws->seed, (uint32_t)(draws->seed >> 32)};
  words[0] = (uint32_t)step;
  words[1] = (uint32_t)PETRA_RNG_ROUND << 24 | ((uint32_t)(index >> 32) & 0xffffffu);
  words[2] = draws->place;
  words[3] = (uint32_t)index;
  for (int round = 0; round < 10; round++) {
    const uint64_t first = (uint64_t)0xd2511f53u * words[0], second = (uint64_t)0xcd9e8d57u * words[2];
    words[0] = (uint32_t)(second >> 32) ^ words[1] ^ key[0];
    words[2] = (uint32_t)(first >> 32) ^ words[3] ^ key[1];
    words[1] = (uint32_t)second;
    words[3] = (uint32_t)first;
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
}

/* Returns the scale of a sample: its largest |x|, or NaN if one is not finite; every thread of the block gets it. */
PETRA_DEVICE float cuda_scale_of(const cuda_quantise_args *a, int64_t first) {
  PETRA_SHARED double shared[CUDA_GRID_THREADS];
  const int64_t count = a->c * a->plane;
  double largest = 0;
  for (int64_t i = PETRA_THREAD; i < count; i += PETRA_THREADS) {
    const float size = fabsf(cuda_element(a->x, a->narrow, first + i));
    largest = cuda_larger(largest, size < INFINITY ? size : NAN);
  }
  return (float)cuda_block_largest(shared, largest);
}

/* Writes the codes of elements 8 group .. 8 group + 7 as `bits` bytes; codes behind the last element are 0. */
PETRA_DEVICE void cuda_write_codes(const cuda_quantise_args *a, int64_t sample, int64_t group, double step) {
  const int bits = petra_element_code_bits(a->format);
  const int64_t count = a->c * a->plane, first = sample * count, codes = a->row - (int64_t)sizeof(float);
  uint8_t *to = a->bytes + sample * a->row + sizeof(float);
  uint32_t words[CUDA_CODES] = {0};
  uint64_t packed = 0;
  if (a->format != PETRA_FORMAT_INT8) {
    cuda_draw(a->draws, sample, 2 * group, words);
    cuda_draw(a->draws, sample, 2 * group + 1, words + CUDA_DRAWS);
  }
  for (int k = 0; k < CUDA_CODES; k++) {
    const int64_t i = group * CUDA_CODES + k;
    if (i >= count)
      break;
    const double x = cuda_element(a->x, a->narrow, first + cuda_place_in_sample(a->c, a->plane, i));
    packed |= (uint64_t)petra_element_code(a->format, x, step, words[k]) << k * bits;
  }
  for (int k = 0; k < bits && group * bits + k < codes; k++)
    to[group * bits + k] = (uint8_t)(packed >> 8 * k);
}

PETRA_KERNEL(cuda_quantise_codes_kernel, const cuda_quantise_args a) {
  const int bits = petra_element_code_bits(a.format);
  const int64_t count = a.c * a.plane, groups = (a.row - (int64_t)sizeof(float) + bits - 1) / bits;
  for (int64_t sample = PETRA_BLOCK; sample < a.n; sample += PETRA_BLOCKS) {
    const float scale = cuda_scale_of(&a, sample * count);
    const double step = petra_element_level_step(a.format, scale);
    if (PETRA_THREAD == 0) {
      const uint32_t not_a_number = 0x7fc00000; /* the NaN of a processor; a GPU produces another NaN */
      memcpy(a.bytes + sample * a.row, scale == scale ? (const void *)&scale : &not_a_number, sizeof scale);
    }
    for (int64_t group = PETRA_THREAD; group < groups; group += PETRA_THREADS)
      cuda_write_codes(&a, sample, group, step);
  }
}

/* Formats without a scale. */
PETRA_KERNEL(cuda_quantise_numbers_kernel, const cuda_quantise_args a) {
  const int64_t count = a.c * a.plane;
  for (int64_t e = cuda_grid_first(); e < a.n * count; e += cuda_grid_step()) {
    const int64_t place = e / count * count + cuda_place_in_sample(a.c, a.plane, e % count);
    const float x = cuda_element(a.x, a.narrow, place);
    if (a.format == PETRA_FORMAT_FP32)
      ((float *)a.bytes)[e] = x;
    else
      ((uint16_t *)a.bytes)[e] = (uint16_t)petra_element_half_of(a.format, x);
  }
}

petra_status cuda_quantise_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_quantise_args *a = (const cuda_quantise_args *)arguments;
  if (a->format < PETRA_FORMAT_INT8)
    PETRA_LAUNCH_FLAT(lane, cuda_quantise_numbers_kernel, cuda_grid_blocks(a->n * a->c * a->plane), CUDA_GRID_THREADS,
                      *a);
  else
    PETRA_LAUNCH_BLOCK(lane, cuda_quantise_codes_kernel, a->n < CUDA_GRID_BLOCKS ? a->n : (int32_t)CUDA_GRID_BLOCKS,
                       CUDA_GRID_THREADS, *a);
  return cuda_launched("quantise");
}

/* Returns element `i` of the logical order of a sample. */
PETRA_DEVICE double cuda_value_at(const cuda_dequantise_args *a, const uint8_t *sample, int64_t i) {
  const int bits = petra_element_code_bits(a->format);
  if (a->format == PETRA_FORMAT_FP32)
    return ((const float *)sample)[i];
  if (bits == 0)
    return petra_element_half_value(a->format, ((const uint16_t *)sample)[i]);
  float scale;
  memcpy(&scale, sample, sizeof scale);
  const uint8_t *codes = sample + sizeof scale + i * bits / 8;
  const int shift = (int)(i * bits % 8);
  const uint32_t pair = codes[0] | (shift + bits > 8 ? (uint32_t)codes[1] << 8 : 0u);
  return petra_element_code_value(a->format, pair >> shift & ((1u << bits) - 1),
                                  petra_element_level_step(a->format, scale));
}

PETRA_KERNEL(cuda_dequantise_kernel, const cuda_dequantise_args a) {
  const int64_t count = a.c * a.plane;
  for (int64_t e = cuda_grid_first(); e < a.n * count; e += cuda_grid_step()) {
    const float value = (float)cuda_value_at(&a, a.bytes + e / count * a.row, e % count);
    cuda_store(a.y, a.narrow, e / count * count + cuda_place_in_sample(a.c, a.plane, e % count), 1, &value);
  }
}

CUDA_GRID_LAUNCH(dequantise, (int64_t)a->n * a->c * a->plane)
