/* The rows of the stage table, for `petra inspect` and the log. */
#include "run/plan.h"

#include <stdio.h>

void petra_plan_stage_summary(const petra_plan *plan, int stage, petra_stage_summary *out) {
  const petra_config *config = plan->config;
  const petra_block *first = &plan->model.blocks[plan->partition.first[stage]];
  const petra_block *last = &plan->model.blocks[plan->partition.first[stage + 1] - 1];
  int64_t image_bytes = config->data.batch * petra_plan_element_bytes(plan, PETRA_TENSOR_ACTIVATION);
  *out = (petra_stage_summary){.reversible = true,
                               .in = first->shape_in,
                               .out = last->shape_out,
                               .streams_in = first->streams_in,
                               .streams_out = last->is_loss ? 1 : last->streams_out,
                               .forward_bytes = image_bytes * petra_block_output_elements(last)};
  if (first == last)
    snprintf(out->name, sizeof out->name, "%s", first->name);
  else
    snprintf(out->name, sizeof out->name, "%s .. %s", first->name, last->name);
  for (const petra_block *block = first; block <= last; block++) {
    out->reversible = out->reversible && block->reversible;
    out->parameters += petra_block_parameters(&plan->model, block);
    out->forward_flops += petra_block_flops(block);
  }
  if (stage > 0)
    out->backward_bytes = image_bytes * petra_block_input_elements(first) * (plan->inverts ? 2 : 1);
  int32_t stages = plan->stages;
  out->delay = petra_method_distance(&plan->method, stages, stage + 1);
  out->lag = petra_method_lag(&plan->method, stages, stage + 1);
  if (plan->distance) {
    out->delay = plan->distance[stage].delay;
    out->lag = plan->distance[stage].lag;
  }
  if (plan->method.program->moment == PETRA_MOMENT_WINDOW)
    out->delay = 0; /* also where a file orders it: no update comes in between */
}
