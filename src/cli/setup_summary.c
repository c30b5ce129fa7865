/* The rows of the stage table, for `petra inspect` and the log. */
#include "cli/setup.h"

#include <stdio.h>

static int64_t element_bytes(const petra_config *config) {
  return config->device.precision == PETRA_PRECISION_FP64 ? 8 : 4;
}

void petra_setup_stage_summary(const petra_setup *setup, int stage, petra_stage_summary *out) {
  const petra_config *config = setup->config;
  const petra_block *first = &setup->model.blocks[setup->partition.first[stage]];
  const petra_block *last = &setup->model.blocks[setup->partition.first[stage + 1] - 1];
  int64_t image_bytes = config->data.batch * element_bytes(config);
  *out = (petra_stage_summary){.reversible = true,
                               .in = first->shape_in,
                               .out = last->shape_out,
                               .streams_in = first->streams_in,
                               .streams_out = last->streams_out};
  if (first == last)
    snprintf(out->name, sizeof out->name, "%s", first->name);
  else
    snprintf(out->name, sizeof out->name, "%s .. %s", first->name, last->name);
  if (last->kind == PETRA_BLOCK_HEAD) {
    out->out = (petra_image_shape){last->classes, 1, 1};
    out->streams_out = 1;
  } else {
    out->forward_bytes = image_bytes * petra_block_output_elements(last);
  }
  for (const petra_block *block = first; block <= last; block++) {
    out->reversible = out->reversible && block->reversible;
    out->parameters += petra_block_parameters(&setup->model, block);
    out->forward_flops += petra_block_flops(block);
  }
  if (stage > 0)
    out->backward_bytes = image_bytes * petra_block_input_elements(first) * (setup->inverts ? 2 : 1);
  int32_t stages = setup->partition.stages;
  out->delay = petra_method_distance(&setup->method, stages, stage + 1);
  out->lag = petra_method_lag(&setup->method, stages, stage + 1);
  petra_setup_schedule_distance(setup, stage, &out->delay, &out->lag);
}
