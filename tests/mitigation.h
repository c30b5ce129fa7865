/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of mitigations share: settings, and the stages of a small petra network in double precision. */
#pragma once

#include "harness.h"
#include "tolerances.h"
#include "training.h"

#define SMALL "model.depth=18", "model.width=2", "data.batch=4", "optim.lr=0.02", "device.threads=1"
#define DOUBLE "device.backend=ref", "device.precision=fp64"
#define FOUR_STAGES "stages.partition=list", "stages.blocks=[1, 4, 3, 2]"
#define MITIGATION(setting) "method.mitigation." setting

enum { STAGES = 4 }; /* of FOUR_STAGES */

/* Such stages with these settings, ended by NULL. */
static inline void open_stages(training *run, const char *const *settings) {
  const char *sets[24] = {SMALL, DOUBLE, FOUR_STAGES, "optim.weight_decay=0.01"};
  const int maximum = (int)(sizeof sets / sizeof *sets);
  int n = 0;
  while (sets[n])
    n++;
  for (int i = 0; settings[i]; i++) {
    ck_assert_msg(n < maximum, "over %d settings", maximum);
    sets[n++] = settings[i];
  }
  must(training_open(run, sets, n));
}
