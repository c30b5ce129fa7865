/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sampler.h"
#include "data/windows.h"

#include <string.h>

static void init(petra_sampler *sampler) {
  const int32_t context = sampler->set->context;
  sampler->labels = context;
  sampler->values = sampler->options.labels ? 0 : context;
  sampler->scratch_bytes = (size_t)(context + 1) * sizeof(int32_t);
}

static void shape(const petra_sampler *sampler, int32_t count, int32_t out[4]) {
  out[0] = count;
  out[1] = sampler->set->context;
  out[2] = out[3] = 1;
}

static petra_status read(const petra_sampler *sampler, uint32_t epoch, int64_t record,
                         const petra_sample_place *place) {
  const petra_dataset *set = sampler->set;
  const int32_t context = set->context;
  const int32_t offset = sampler->options.shuffle ? petra_windows_offset(sampler->options.seed, epoch, context) : 0;
  int32_t *window = place->scratch;
  PETRA_TRY(set->ops->read_tokens(set, offset + record * context, context + 1, window));
  for (int32_t t = 0; t < sampler->values; t++)
    place->values[t] = window[t];
  memcpy(place->labels, window + 1, (size_t)context * sizeof *window);
  return PETRA_OK;
}

const petra_sampler_ops petra_sampler_tokens = {.init = init, .shape = shape, .read = read};
