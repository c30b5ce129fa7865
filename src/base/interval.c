/* SPDX-License-Identifier: Apache-2.0 */
#include "base/interval.h"

#include <gsl/gsl_cdf.h>
#include <math.h>

petra_interval petra_interval_of(const double *values, int count, double level) {
  petra_interval result = {0, NAN, NAN, NAN};
  double sum = 0, squares = 0;
  for (int i = 0; i < count; i++)
    if (isfinite(values[i])) {
      sum += values[i];
      result.count++;
    }
  if (result.count > 0)
    result.mean = sum / result.count;
  if (result.count < 2)
    return result;
  for (int i = 0; i < count; i++)
    if (isfinite(values[i]))
      squares += (values[i] - result.mean) * (values[i] - result.mean);
  double freedom = result.count - 1;
  result.deviation = sqrt(squares / freedom);
  result.half = gsl_cdf_tdist_Pinv((1 + level) / 2, freedom) * result.deviation / sqrt(result.count);
  return result;
}
