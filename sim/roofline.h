/* The roofline: what a stage's work costs on a named device, from the FLOPs and the bytes of its kernels over the device's
 * peaks. A kernel takes max(FLOPs / peak, bytes / bandwidth); kernels follow one another, so that a stage's time is the sum.
 * A lower bound: no launch overhead, no cache, perfect overlap of memory and arithmetic. Plain numbers go in.
 *
 * Kernels, for N images and elements of e bytes (a tensor is read or written whole, once per pass):
 *   convolution forward    2 N out in k^2 pixels FLOPs on the matrix units; reads x and w, writes y
 *     data gradient        the same FLOPs; reads dy and w, writes dx     (none for the stem: an image has no gradient)
 *     weight gradient      the same FLOPs; reads x and dy, writes dw
 *   batch norm and ReLU    forward 2 reads (statistics, then the result), 1 write; 7 FLOPs an element
 *                          backward 4 reads (x and dy for the sums, both again), 1 write; 11 FLOPs an element
 *   addition of streams    2 reads, 1 write, 1 FLOP an element: forward, reconstruction (a subtraction) and backward
 *   max-pool               forward reads its input, writes its output; backward the reverse; window^2 FLOPs an output
 *   head                   average pool, then a matrix product as a convolution of one pixel
 *   update                 SGD with momentum: reads w, dw, v, writes w, v; 6 FLOPs a parameter
 * Elementwise kernels run on the vector units: their few FLOPs never decide on the devices here. */
#ifndef PETRA_SIM_ROOFLINE_H
#define PETRA_SIM_ROOFLINE_H

#include "base/config.h"
#include "base/status.h"
#include "sim/cost.h"

#include <stdbool.h>
#include <stdint.h>

/* Peaks as data sheets state them, dense (without structured sparsity). */
typedef struct petra_device_peaks {
  const char *name;
  double matrix_flops[PETRA_COST_ARITHMETICS]; /* FLOP/s of convolutions and products; 0: the device has no such
                                             units */
  double vector_flops;                         /* FLOP/s of elementwise kernels, fp32 */
  double bandwidth_Bps;                        /* of the device's memory */
} petra_device_peaks;

int petra_device_peaks_count(void);
const petra_device_peaks *petra_device_peaks_get(int index);

/* The device of that name: a100, h100, h200, cpu-core. PETRA_CONFIG with the list of names otherwise. */
petra_status petra_device_peaks_find(const char *name, const petra_device_peaks **out);

/* Peak of one CPU core in FLOP/s: frequency times lanes of a vector times units that do a fused multiply-add
 * (2 FLOPs). */
double petra_core_flops(double hertz, int lanes, int fma_units);

/* One kernel. Vector kernels ignore the arithmetic. */
typedef struct petra_kernel {
  bool matrix;
  double flops, bytes;
} petra_kernel;

/* max(FLOPs / peak, bytes / bandwidth) in seconds. PETRA_CONFIG if the device has no units for the
 * arithmetic, a count is negative or not finite, or bytes flow over no bandwidth. */
petra_status petra_roofline_kernel(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                   const petra_kernel *kernel, double *seconds);

/* A convolution, a batch norm and ReLU, for one image. */
typedef struct petra_roofline_unit {
  int64_t in, out, kernel;       /* channels, side of the window */
  int64_t pixels_in, pixels_out; /* height times width */
} petra_roofline_unit;

/* What the roofline must know of one block. */
typedef struct petra_roofline_block {
  const petra_roofline_unit *units;
  int unit_count;
  bool data_gradient;                        /* of the units that read the block's input: not the stem's */
  int64_t added_elements;                    /* of one image in the addition of streams; 0: there is none */
  int64_t pool_in, pool_out, pool_window;    /* max-pool: elements of one image, side of the window; 0: there is none */
  int64_t features, feature_pixels, classes; /* head; 0: there is none */
  int64_t parameters;
} petra_roofline_block;

typedef struct petra_roofline_rule {
  const petra_device_peaks *device;
  petra_cost_arithmetic arithmetic;
  int64_t images;        /* of a microbatch */
  int64_t element_bytes; /* of activations and weights */
} petra_roofline_rule;

typedef struct petra_roofline_seconds {
  double forward;         /* F */
  double backward;        /* B without reconstruction */
  double reconstruct;     /* reconstruction or recomputation; 0 for the head */
  double weight_gradient; /* the part of backward that W takes where the program splits it off */
  double update;          /* U */
} petra_roofline_seconds;

/* PETRA_CONFIG as above, or if a count is negative. A stage of several blocks takes the sum of its blocks. */
petra_status petra_roofline_block_seconds(const petra_roofline_rule *rule, const petra_roofline_block *block,
                                          petra_roofline_seconds *out);

/* The durations of `cost` from the seconds; its message sizes stay as they are. */
void petra_roofline_cost(const petra_roofline_seconds *seconds, petra_stage_cost *cost);

#endif
