/* SPDX-License-Identifier: Apache-2.0 */
#include "base/account.h"

#include <assert.h>
#include <stddef.h>

const char *petra_memory_category_name(petra_memory_category category) {
  static const char *const names[] = {
#define PETRA_MEMORY_NAME(name, text) text,
      PETRA_MEMORY_LIST(PETRA_MEMORY_NAME)
#undef PETRA_MEMORY_NAME
  };
  return category >= 0 && category < PETRA_MEMORY_CATEGORIES ? names[category] : "?";
}

void petra_account_add(petra_account *account, petra_memory_category category, int64_t bytes) {
  if (!account)
    return;
  account->bytes[category] += bytes;
  account->total_bytes += bytes;
  assert(account->bytes[category] >= 0);
  if (account->bytes[category] > account->peak_bytes[category])
    account->peak_bytes[category] = account->bytes[category];
  if (account->total_bytes > account->total_peak_bytes)
    account->total_peak_bytes = account->total_bytes;
}
