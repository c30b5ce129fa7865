/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend in double precision. */
#define REF_DOUBLE
#include "backend/ref.c"
