/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/tokens.h"

#include "base/log.h"

petra_status petra_token_refuse(const char *operation, const petra_tensor *tokens, int64_t index, double token,
                                int32_t rows) {
  const int64_t positions = tokens->shape[1];
  return petra_fail(PETRA_BACKEND, "%s: token %g at position %lld of sample %lld, expected a whole number from 0 to %d",
                    operation, token, (long long)(index % positions), (long long)(index / positions), rows - 1);
}
