/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe_store.h"

#include "base/mem.h"

static void release(const petra_probe_store *store, petra_probe_stored *stored) {
  for (int b = 0; stored->sets && b < store->blocks; b++)
    petra_tensor_set_release(&stored->sets[b]);
  petra_free(stored->sets);
}

void petra_probe_store_fini(petra_probe_store *store) {
  for (int64_t i = 0; i < store->count; i++)
    release(store, &store->stored[i]);
  petra_free(store->stored);
}

petra_probe_stored *petra_probe_store_find(const petra_probe_store *store, petra_weights_key key) {
  for (int64_t i = 0; i < store->count; i++)
    if (petra_weights_key_equal(store->stored[i].key, key))
      return &store->stored[i];
  return NULL;
}

petra_status petra_probe_store_add(petra_probe_store *store, petra_weights_key key, bool sets,
                                   petra_probe_stored **out) {
  petra_probe_stored stored = {.key = key};
  PETRA_TRY(petra_array_reserve(&store->stored, &store->capacity, store->count + 1, sizeof stored));
  if (sets)
    PETRA_TRY(petra_allocate(&stored.sets, (size_t)store->blocks, sizeof *stored.sets));
  store->stored[store->count] = stored;
  *out = &store->stored[store->count++];
  return PETRA_OK;
}

void petra_probe_store_updated(petra_probe_store *store, int64_t latest) {
  int64_t left = 0;
  for (int64_t i = 0; i < store->count; i++) {
    if (store->stored[i].key.version >= latest || store->stored[i].key.version == store->forward)
      store->stored[left++] = store->stored[i];
    else
      release(store, &store->stored[i]);
  }
  store->count = left;
}

void petra_probe_store_forwarded(petra_probe_store *store, int64_t version, int64_t latest) {
  store->forward = version;
  petra_probe_store_updated(store, latest);
}
