/* Durations of a stage from the kernels of its blocks. */
#include "cli/setup.h"
#include "sim/roofline.h"

_Static_assert((int)PETRA_COST_FP32 == (int)PETRA_ARITHMETIC_FP32 &&
                   (int)PETRA_COST_TF32 == (int)PETRA_ARITHMETIC_TF32 &&
                   (int)PETRA_COST_BF16 == (int)PETRA_ARITHMETIC_BF16,
               "order of cluster.cost.arithmetic");

enum { ELEMENT_BYTES = 4 }; /* in every arithmetic, as cluster.cost.arithmetic says */

petra_status petra_setup_roofline(const petra_setup *setup, int stage, petra_stage_cost *out) {
  const petra_config *config = setup->config;
  const char *device = petra_config_choice_name("cluster.cost.device", (int)config->cluster.cost.device);
  const petra_device_peaks *peaks;
  petra_roofline_seconds sum = {0};
  PETRA_TRY(petra_device_peaks_find(device, &peaks));
  for (int b = setup->partition.first[stage]; b < setup->partition.first[stage + 1]; b++) {
    petra_kernel_list list;
    petra_block_kernels(&setup->model, &setup->model.blocks[b], config->data.batch, ELEMENT_BYTES, &list);
    PETRA_TRY(
        petra_roofline_add(peaks, (petra_arithmetic)config->cluster.cost.arithmetic, list.kernel, list.count, &sum));
  }
  petra_roofline_cost(&sum, out);
  return PETRA_OK;
}
