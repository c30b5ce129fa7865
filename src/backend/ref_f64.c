/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend in double precision. */
#define REAL double
#define REF_OPS petra_ref_ops_f64
#include "backend/ref_real.inc"
