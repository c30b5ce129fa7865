/* SPDX-License-Identifier: Apache-2.0 */
/* The generated records that the golden training runs were made from: a CIFAR-10 binary file of
 * class-dependent waves plus noise, by integer arithmetic alone. tests/reference/make_data.py writes the same
 * bytes. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* Bytes of one record: the label, then 3 x 32 x 32 pixels. */
enum { GOLDEN_DATA_RECORD_BYTES = 3073 };

/* The records of the golden runs (the attribute `records` of every golden file), and the 64-bit FNV-1a of
 * their file. */
#define GOLDEN_DATA_RECORDS 960
#define GOLDEN_DATA_FNV1A UINT64_C(0xf2939bf9f6c34b22)

/* Makes record `index` >= 0: writes GOLDEN_DATA_RECORD_BYTES bytes. */
void golden_data_record(int64_t index, uint8_t *record);

/* Writes the first `records` records to a new file at `path` and sets the FNV-1a of what was written.
 * PETRA_IO: the file cannot be created or written. */
petra_status golden_data_write(const char *path, int64_t records, uint64_t *fnv1a);
