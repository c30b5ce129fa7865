/* What the roofline must know of a stage, counted from its blocks. */
#include "backend/precision.h"
#include "run/plan.h"
#include "sim/roofline.h"

static int64_t elements(const petra_image_shape *shape) {
  return (int64_t)shape->channels * shape->height * shape->width;
}

static void describe_units(const petra_block *block, petra_roofline_unit *units) {
  for (int u = 0; u < block->unit_count; u++) {
    const petra_unit *unit = &block->units[u];
    units[u] = (petra_roofline_unit){.in = unit->in,
                                     .out = unit->out,
                                     .kernel = unit->kernel,
                                     .pixels_in = (int64_t)unit->height_in * unit->width_in,
                                     .pixels_out = (int64_t)unit->height_out * unit->width_out};
  }
}

static void describe(const petra_model *model, const petra_block *block, petra_roofline_unit *units,
                     petra_roofline_block *out) {
  describe_units(block, units);
  *out = (petra_roofline_block){.units = units,
                                .unit_count = block->unit_count,
                                .data_gradient = block->kind != PETRA_BLOCK_STEM,
                                .parameters = petra_block_parameters(model, block)};
  if (block->kind == PETRA_BLOCK_HEAD) {
    out->features = block->features;
    out->feature_pixels = (int64_t)block->shape_in.height * block->shape_in.width;
    out->classes = block->classes;
  } else if (block->kind != PETRA_BLOCK_STEM) {
    out->added_elements = elements(&block->shape_out); /* F's output is added to one stream */
  }
  if (block->pooled) {
    out->pool_in = units[0].out * units[0].pixels_out;
    out->pool_out = petra_block_output_elements(block);
    out->pool_window = block->pool.window;
  }
}

petra_status petra_plan_roofline_cost(const petra_plan *plan, int stage, petra_stage_cost *out) {
  const petra_config *config = plan->config;
  const char *device = petra_config_choice_name("cluster.cost.device", (int)config->cluster.cost.device);
  petra_roofline_rule rule = {
      .arithmetic = config->cluster.cost.arithmetic,
      .images = config->data.batch,
      .element_bytes = petra_element_bytes(config->device.backend, config->device.precision, PETRA_TENSOR_ACTIVATION)};
  petra_roofline_seconds sum = {0};
  PETRA_TRY(petra_device_peaks_find(device, &rule.device));
  for (int b = plan->partition.first[stage]; b < plan->partition.first[stage + 1]; b++) {
    petra_roofline_unit units[PETRA_BLOCK_UNITS];
    petra_roofline_block block;
    petra_roofline_seconds seconds;
    describe(&plan->model, &plan->model.blocks[b], units, &block);
    PETRA_TRY(petra_roofline_block_seconds(&rule, &block, &seconds));
    sum.forward += seconds.forward;
    sum.backward += seconds.backward;
    sum.reconstruct += seconds.reconstruct;
    sum.weight_gradient += seconds.weight_gradient;
    sum.update += seconds.update;
  }
  petra_roofline_cost(&sum, out);
  return PETRA_OK;
}
