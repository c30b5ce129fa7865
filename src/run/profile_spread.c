/* Which of the times of a profile are unsure. */
#include "run/profile.h"

#include <math.h>

/* What is above both is told: quartiles so far apart, over the median, and so much of what the stage takes in all. */
static const double LARGE = 0.5, MATTERS = 0.05;

static double range_of(const petra_spread *spread) {
  return spread->quartile3 - spread->quartile1;
}

/* A microbatch at the stage, by the medians: F and B with reconstruction. */
static double whole_of(const petra_profile_stage *stage) {
  double sum = 0;
  for (int p = PETRA_PROFILE_FORWARD; p <= PETRA_PROFILE_RECONSTRUCT; p++)
    sum += stage->part[p].median;
  return sum;
}

petra_profile_unsure petra_profile_find_unsure(const petra_profile *profile) {
  petra_profile_unsure found = {0};
  for (int j = 0; j < profile->stages; j++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++) {
      const petra_spread *spread = &profile->stage[j].part[p];
      const double range = range_of(spread);
      if (!(range > LARGE * spread->median && range > MATTERS * whole_of(&profile->stage[j])))
        continue;
      const double over_median = spread->median > 0 ? range / spread->median : INFINITY;
      if (found.count++ == 0 || over_median > found.over_median)
        found.stage = j, found.part = (petra_profile_part)p, found.over_median = over_median;
    }
  return found;
}
