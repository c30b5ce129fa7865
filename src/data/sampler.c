/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sampler.h"

void petra_sampler_init(petra_sampler *sampler, const petra_dataset *set, const petra_sampler_options *options) {
  static const petra_sampler_ops *const kinds[] = {
      [PETRA_SAMPLE_IMAGE] = &petra_sampler_images, [PETRA_SAMPLE_TOKENS] = &petra_sampler_tokens};
  *sampler = (petra_sampler){.ops = kinds[set->samples], .set = set, .options = *options};
  sampler->ops->init(sampler);
}
