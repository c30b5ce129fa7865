/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lane.h"

petra_lane *petra_lane_here(void) {
  static _Thread_local petra_lane lane;
  return &lane;
}
