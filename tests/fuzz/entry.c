/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer's entry, for the function that PETRA_FUZZ_ENTRY names. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return PETRA_FUZZ_ENTRY(data, size);
}
