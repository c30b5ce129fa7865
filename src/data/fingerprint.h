/* SPDX-License-Identifier: Apache-2.0 */
/* A number by which a run that goes on knows its data again, wherever they lie by now. */
#ifndef PETRA_DATA_FINGERPRINT_H
#define PETRA_DATA_FINGERPRINT_H

#include "data/dataset.h"

/* XXH64 of a split, numbers as 64 bits from the least byte on: kind of samples, how many, classes; then
 *   tokens   those of the split, 16 bits each, where they are 2^24 at most, else 256 runs of 2^16, evenly from the first to the last
 *   images   all labels; and of 16 records, evenly from the first to the last, the pixels or, where a set stores images of their own
 *            sizes (imagefolder), that size: what is made of a JPEG depends on the library
 * Two sets that differ in nothing of this are the same by it. It takes milliseconds. Errors are those of reading. */
petra_status petra_dataset_fingerprint(const petra_dataset *set, uint64_t *out);

#endif
