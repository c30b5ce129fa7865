/* Durations of a stage from the kernels of its blocks. */
#include "backend/precision.h"
#include "run/plan.h"
#include "sim/roofline.h"

petra_status petra_plan_roofline_cost(const petra_plan *plan, int stage, petra_stage_cost *out) {
  const petra_config *config = plan->config;
  const char *device = petra_config_choice_name("cluster.cost.device", (int)config->cluster.cost.device);
  const petra_device_peaks *peaks;
  const int64_t element_bytes =
      petra_element_bytes(config->device.backend, config->device.precision, PETRA_TENSOR_ACTIVATION);
  petra_roofline_seconds sum = {0};
  PETRA_TRY(petra_device_peaks_find(device, &peaks));
  for (int b = plan->partition.first[stage]; b < plan->partition.first[stage + 1]; b++) {
    petra_kernel_list list;
    petra_block_kernels(&plan->model, &plan->model.blocks[b], config->data.batch, element_bytes, &list);
    PETRA_TRY(petra_roofline_add(peaks, config->cluster.cost.arithmetic, list.kernel, list.count, &sum));
  }
  petra_roofline_cost(&sum, out);
  return PETRA_OK;
}
