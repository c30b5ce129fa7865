/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the uncertain times of a profile. */
#include "profile/profile.h"

#include <math.h>

/* Parts above both limits are reported: the distance of quartiles over the median, and over the stage's time. */
static const double LARGE = 0.5, MATTERS = 0.05;

/* Returns the stage's time for a microbatch, by the medians: F and B with reconstruction. */
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
