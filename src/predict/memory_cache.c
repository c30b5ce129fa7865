/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/memory_cache.h"

#include "base/mem.h"

#include <string.h>

/* The facts of a plan that a prediction depends on. They are followed by the number of blocks of each stage. */
enum { FACTS = 14, ENTRIES = 4096 };
static const size_t BYTES_MAX = (size_t)64 << 20;

typedef struct entry {
  int64_t *key; /* NULL: unused */
  size_t key_bytes;
  petra_memory_stage *stages;
  size_t bytes; /* of the stages */
} entry;

struct petra_memory_cache {
  entry entry[ENTRIES]; /* a ring: the oldest are replaced */
  int next, oldest;
  size_t bytes;
};

petra_status petra_memory_cache_create(petra_memory_cache **out) {
  return petra_allocate(out, 1, sizeof **out);
}

static void drop(petra_memory_cache *cache, entry *e) {
  cache->bytes -= e->bytes;
  petra_free(e->key);
  petra_free(e->stages);
  *e = (entry){0};
}

void petra_memory_cache_destroy(petra_memory_cache *cache) {
  for (int i = 0; cache && i < ENTRIES; i++)
    drop(cache, &cache->entry[i]);
  petra_free(cache);
}

static petra_status make_key(const petra_plan *plan, int64_t **out) {
  const petra_method *m = &plan->method;
  const int64_t facts[FACTS] = {plan->config->data.batch,
                                plan->stages,
                                m->forward_weights,
                                m->backward_weights,
                                m->invert_weights,
                                m->keep,
                                plan->inverts,
                                m->sync_period,
                                plan->program.split_head,
                                plan->program.local,
                                m->program->split_backward,
                                plan->config->cluster.message.up,
                                plan->config->cluster.message.down,
                                plan->config->method.keep_precision};
  int64_t *key;
  PETRA_TRY(petra_allocate(&key, FACTS + (size_t)plan->stages, sizeof *key));
  memcpy(key, facts, sizeof facts);
  for (int j = 0; j < plan->stages; j++)
    key[FACTS + j] = plan->partition.first[j + 1] - plan->partition.first[j];
  *out = key;
  return PETRA_OK;
}

static const entry *find(const petra_memory_cache *cache, const int64_t *key, size_t key_bytes) {
  for (int i = 0; i < ENTRIES; i++) {
    const entry *e = &cache->entry[i];
    if (e->key && e->key_bytes == key_bytes && memcmp(e->key, key, key_bytes) == 0)
      return e;
  }
  return NULL;
}

/* Stores a prediction; the cache takes over the key. */
static petra_status store(petra_memory_cache *cache, int64_t *key, size_t key_bytes, const petra_memory_stage *stages,
                          size_t bytes) {
  petra_memory_stage *copy;
  entry *e = &cache->entry[cache->next];
  const petra_status status = petra_allocate(&copy, bytes, 1);
  if (status != PETRA_OK) {
    petra_free(key);
    return status;
  }
  memcpy(copy, stages, bytes);
  drop(cache, e);
  for (; cache->bytes > 0 && cache->bytes + bytes > BYTES_MAX; cache->oldest = (cache->oldest + 1) % ENTRIES)
    drop(cache, &cache->entry[cache->oldest]);
  *e = (entry){key, key_bytes, copy, bytes};
  cache->bytes += bytes;
  cache->next = (cache->next + 1) % ENTRIES;
  return PETRA_OK;
}

petra_status petra_memory_cache_measured(petra_memory_cache *cache, const petra_plan *plan, petra_memory_stage *out) {
  const size_t bytes = (size_t)plan->stages * sizeof *out, key_bytes = (FACTS + (size_t)plan->stages) * sizeof(int64_t);
  int64_t *key;
  if (petra_mitigation_key(&plan->method.mitigation)) /* its delays depend on the order */
    return petra_predict_memory_measured(plan, NULL, out);
  PETRA_TRY(make_key(plan, &key));
  const entry *known = find(cache, key, key_bytes);
  if (known) {
    memcpy(out, known->stages, bytes);
    petra_free(key);
    return PETRA_OK;
  }
  const petra_status status = petra_predict_memory_measured(plan, NULL, out);
  if (status == PETRA_OK)
    return store(cache, key, key_bytes, out, bytes);
  petra_free(key);
  return status;
}
