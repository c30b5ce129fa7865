/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the times of a profile are unsure. */
#include "profile/profile.h"

#include <math.h>

/* What is above both is told: quartiles so far apart, over the median, and so much of what the stage takes in all. */
static const double LARGE = 0.5, MATTERS = 0.05;

/* A microbatch at the stage, by the medians: F and B with reconstruction. */
static double whole_of(const petra_profile_stage *stage) {
  double sum = 0;
  for (int p = PETRA_PROFILE_FORWARD; p <= PETRA_PROFILE_RECONSTRUCT; p++)
    sum += stage->part[p].median;
  return sum;
}

petra_profile_unsure petra_profile_find_unsure(const petra_profile *profile) {
  petra_profile_unsure found = {0};
  double maximum = 0;
  for (int j = 0; j < profile->stages; j++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++) {
      const petra_spread *spread = &profile->stage[j].part[p];
      const double range = spread->quartile3 - spread->quartile1, whole = whole_of(&profile->stage[j]);
      if (!(range > LARGE * spread->median && range > MATTERS * whole))
        continue;
      if (found.count++ == 0 || range > maximum * whole) {
        maximum = whole > 0 ? range / whole : INFINITY;
        found.stage = j, found.part = (petra_profile_part)p;
      }
    }
  return found;
}
