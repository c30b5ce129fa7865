/* SPDX-License-Identifier: Apache-2.0 */
#include "run/digest.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/version.h"
#include "base/xxh64.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { RECORDS = 16 }; /* images that are compared, from the first one to the last */

static petra_status print_set(const char *name, const petra_dataset *set, FILE *out) {
  unsigned char *pixels;
  petra_xxh64 hash;
  petra_status status = PETRA_OK;
  if (!set)
    return PETRA_OK;
  const size_t bytes = (size_t)3 * (size_t)set->height * (size_t)set->width;
  PETRA_TRY(petra_allocate(&pixels, bytes, 1));
  petra_xxh64_init(&hash);
  for (int64_t i = 0; i < RECORDS && status == PETRA_OK; i++) {
    int32_t label;
    status = set->ops->read(set, i * (set->count - 1) / (RECORDS - 1), pixels, &label);
    petra_xxh64_add(&hash, pixels, status == PETRA_OK ? bytes : 0);
    petra_xxh64_add(&hash, &label, status == PETRA_OK ? sizeof label : 0);
  }
  petra_free(pixels);
  fprintf(out, "%s set: %lld images of %d x %d, %d classes, deviation %.17g %.17g %.17g, hash of %d of them %016llx\n",
          name, (long long)set->count, set->height, set->width, set->classes, set->deviation[0], set->deviation[1],
          set->deviation[2], RECORDS, (unsigned long long)petra_xxh64_value(&hash));
  return status;
}

/* A file that a key names; "" or a missing `path`: nothing. */
static petra_status print_file(const char *key, const char *path, FILE *out) {
  char block[4096];
  petra_xxh64 hash;
  size_t got;
  if (!*path)
    return PETRA_OK;
  FILE *file = fopen(path, "rb");
  if (!file)
    return petra_fail(PETRA_IO, "%s: %s", path, strerror(errno));
  petra_xxh64_init(&hash);
  while ((got = fread(block, 1, sizeof block, file)) > 0)
    petra_xxh64_add(&hash, block, got);
  const bool failed = ferror(file);
  fclose(file);
  if (failed)
    return petra_fail(PETRA_IO, "%s: cannot be read", path);
  fprintf(out, "hash of the file of %s: %016llx\n", key, (unsigned long long)petra_xxh64_value(&hash));
  return PETRA_OK;
}

/* What the order of actions and the stages of each rank follow from. */
static void print_costs(const petra_digest *d, FILE *out) {
  const petra_executor_virtual_options *options = &d->cluster->executor;
  for (int32_t j = 0; j < options->cost_count; j++) {
    const petra_stage_cost *cost = &options->costs[j];
    fprintf(out, "stage %d at rank %d, ns: %lld %lld %lld %lld %lld\n", j + 1,
            petra_placement_rank(d->network->placement, 0, j + 1), (long long)cost->forward_ns,
            (long long)cost->backward_ns, (long long)cost->reconstruct_ns, (long long)cost->weight_gradient_ns,
            (long long)cost->update_ns);
  }
}

petra_status petra_digest_print(const void *context, FILE *out) {
  const petra_digest *d = context;
  const petra_config *config = d->network->plan->config;
  char text[256];
  fprintf(out, "petra %s (%s)\n", petra_version(), petra_version_git_commit());
  d->network->backend->ops->describe(d->network->backend, text, sizeof text);
  fprintf(out, "backend %s\n", text);
  PETRA_TRY(print_set("training", d->train, out));
  PETRA_TRY(print_set("evaluation", d->evaluation, out));
  PETRA_TRY(print_file("model.weights", config->model.weights, out));
  PETRA_TRY(print_file("method.schedule", config->method.schedule, out));
  print_costs(d, out);
  return petra_config_print(config, out);
}
