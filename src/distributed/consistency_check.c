/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/release.h"
#include "base/seal.h"
#include "data/loader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { RECORDS = 16 }; /* windows or images that are compared, from the first to the last */

static void print_about(const char *name, const petra_dataset *set, FILE *out) {
  fprintf(out, "%s set: %lld %s, ", name, (long long)set->count, petra_sample_words_of(set->samples)->samples);
  if (set->samples == PETRA_SAMPLE_TOKENS)
    fprintf(out, "%lld tokens of %d", (long long)set->tokens, set->classes);
  else
    fprintf(out, "%d x %d, %d classes, deviation %.17g %.17g %.17g", set->height, set->width, set->classes,
            set->deviation[0], set->deviation[1], set->deviation[2]);
}

/* Hashes the samples, each with its labels. */
static petra_status hash_samples(const petra_dataset *set, const petra_sampler *sampler, XXH64_state_t *hash) {
  PETRA_FREED double *values = NULL;
  PETRA_FREED int32_t *labels = NULL;
  PETRA_FREED void *scratch = NULL;
  PETRA_TRY(petra_allocate(&values, (size_t)sampler->values, sizeof *values));
  PETRA_TRY(petra_allocate(&labels, (size_t)sampler->labels, sizeof *labels));
  PETRA_TRY(petra_allocate_raw(&scratch, 1, sampler->scratch_bytes));
  const petra_batch sample = {.values = values, .labels = labels};
  for (int64_t i = 0; i < RECORDS; i++) {
    PETRA_TRY(sampler->read(sampler, 0, i * (set->count - 1) / (RECORDS - 1), &sample, 0, scratch));
    XXH64_update(hash, values, (size_t)sampler->values * sizeof *values);
    XXH64_update(hash, labels, (size_t)sampler->labels * sizeof *labels);
  }
  return PETRA_OK;
}

static petra_status print_set(const char *name, const petra_dataset *set, FILE *out) {
  petra_sampler sampler;
  XXH64_state_t *hash;
  if (!set)
    return PETRA_OK;
  petra_sampler_init(&sampler, set, &(petra_loader_options){0});
  PETRA_TRY(petra_xxh64_create(&hash));
  const petra_status status = hash_samples(set, &sampler, hash);
  if (status == PETRA_OK) {
    print_about(name, set, out);
    fprintf(out, ", hash of %d of them %016llx\n", RECORDS, (unsigned long long)XXH64_digest(hash));
  }
  XXH64_freeState(hash);
  return status;
}

/* Prints a hash of the file that a key names; prints nothing if `path` is empty. */
static petra_status print_file(const char *key, const char *path, FILE *out) {
  char block[4096];
  XXH64_state_t *hash;
  size_t got;
  if (!*path)
    return PETRA_OK;
  FILE *file = fopen(path, "rb");
  if (!file)
    return petra_fail(PETRA_IO, "%s: %s", path, strerror(errno));
  petra_status status = petra_xxh64_create(&hash);
  if (status == PETRA_OK) {
    while ((got = fread(block, 1, sizeof block, file)) > 0)
      XXH64_update(hash, block, got);
    if (ferror(file))
      status = petra_fail(PETRA_IO, "%s: cannot be read", path);
    else
      fprintf(out, "hash of the file of %s: %016llx\n", key, (unsigned long long)XXH64_digest(hash));
    XXH64_freeState(hash);
  }
  fclose(file);
  return status;
}

/* Prints the costs, which determine the order of actions, and the rank of each stage. */
static void print_costs(const petra_consistency *d, FILE *out) {
  const petra_executor_virtual_options *options = &d->cluster->executor;
  for (int32_t j = 0; j < options->cost_count; j++) {
    const petra_stage_cost *cost = &options->costs[j];
    fprintf(out, "stage %d at rank %d, ns: %lld %lld %lld %lld %lld\n", j + 1,
            petra_placement_rank(d->network->placement, 0, j + 1), (long long)cost->forward_ns,
            (long long)cost->backward_ns, (long long)cost->reconstruct_ns, (long long)cost->weight_gradient_ns,
            (long long)cost->update_ns);
  }
}

petra_status petra_consistency_print(const void *context, FILE *out) {
  const petra_consistency *d = context;
  const petra_config *config = d->network->plan->config;
  char text[256];
  fprintf(out, "petra %s (%s)\n", petra_version(), petra_version_git_commit());
  d->network->backend->ops->describe(d->network->backend, text, sizeof text);
  fprintf(out, "backend %s\n", text);
  fprintf(out, "%s --resume, %s --trace\n", d->resumes ? "with" : "without", d->traces ? "with" : "without");
  PETRA_TRY(print_set("training", d->train, out));
  PETRA_TRY(print_set("evaluation", d->evaluation, out));
  PETRA_TRY(print_file("model.weights", config->model.weights, out));
  PETRA_TRY(print_file("method.schedule", config->method.schedule, out));
  print_costs(d, out);
  return petra_config_print(config, out);
}
