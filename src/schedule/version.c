/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/version.h"

#include "base/log.h"

petra_status petra_forward_version(const petra_version_rule *rule, int32_t stage, int64_t microbatch, int64_t updates,
                                   int64_t *copy, int64_t *out) {
  int64_t version = updates;
  if (rule->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER) {
    version = petra_buffered_version(microbatch, rule->accumulate);
  } else if (rule->sync_period > 0) {
    if (microbatch % rule->sync_period == 0)
      *copy = updates;
    version = *copy;
  }
  if (version > updates)
    return petra_fail(PETRA_SCHEDULE,
                      "stage %d: microbatch %lld reads the weights after %lld updates, but only %lld were made; "
                      "expected at least one microbatch per stage between updates",
                      stage, (long long)microbatch, (long long)version, (long long)updates);
  *out = version;
  return PETRA_OK;
}

int64_t petra_backward_version(const petra_version_rule *rule, petra_weights weights, int64_t microbatch,
                               int64_t updates, int64_t forward) {
  if (weights == PETRA_WEIGHTS_STASHED)
    return forward;
  return weights == PETRA_WEIGHTS_DOUBLE_BUFFER ? petra_buffered_version(microbatch, rule->accumulate) : updates;
}
