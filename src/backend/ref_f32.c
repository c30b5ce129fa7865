/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend in single precision. */
#define REAL float
#define REF_OPS petra_ref_ops_f32
#include "backend/ref_real.inc"
