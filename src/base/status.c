/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

int petra_status_exit_code(petra_status status) {
  static const int codes[] = {
#define PETRA_STATUS_CODE(name, code, meaning) [PETRA_##name] = code,
      PETRA_STATUS_LIST(PETRA_STATUS_CODE)
#undef PETRA_STATUS_CODE
  };
  return (unsigned)status < sizeof codes / sizeof *codes ? codes[status] : 1;
}
