/* SPDX-License-Identifier: Apache-2.0 */
/* method.extra_delay: the delay as a variable that is independent of the number of stages. */
#include "schedule/method.h"

static const char key[] = "method.extra_delay";

/* Returns true if the method has an order in which B can come later. */
static petra_status check_order(const petra_config *config, const petra_method *method) {
  const petra_program_ops *program = method->program;
  if (*config->method.schedule)
    return petra_config_fail(config, key, "with method.schedule: %s, whose order is fixed; expected 0, or []",
                             config->method.schedule);
  if (program->arrival || !program->delay)
    return petra_config_fail(config, key, "method %s, whose program %s %s; expected 0, or a method with a fixed delay",
                             method->name, program->name, program->arrival ? "fixes no delay" : "has no delay");
  if (method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER)
    return petra_config_fail(config, key,
                             "method %s, whose double buffer makes every delay one update; expected 0, or weights that "
                             "are not double-buffered",
                             method->name);
  return PETRA_OK;
}

/* An extra delay at the last stage splits the head; in lockstep a split head is one tick of it. */
static petra_status check_head(const petra_config *config, int64_t at_last) {
  if (config->method.head == PETRA_HEAD_SPLIT)
    return petra_config_fail(config, "method.head",
                             "split with method.extra_delay, which already contains the tick of a split head; expected "
                             "preset (a split head alone is extra_delay: 1)");
  if (config->method.head == PETRA_HEAD_FUSED && at_last > 0)
    return petra_config_fail(config, "method.head",
                             "fused with method.extra_delay: %lld at the last stage, whose forward and backward are "
                             "then two actions; expected preset",
                             (long long)at_last);
  return PETRA_OK;
}

petra_status petra_method_set_extra(const petra_config *config, petra_method *method) {
  const petra_int_list *extra = &config->method.extra_delay;
  for (int64_t i = 1; i < extra->count; i++)
    if (extra->values[i] > extra->values[i - 1])
      return petra_config_fail(config, key,
                               "%lld of stage %lld is above the %lld of stage %lld, which would have to run its "
                               "backward before its gradient arrives; expected no more than that",
                               (long long)extra->values[i], (long long)i + 1, (long long)extra->values[i - 1],
                               (long long)i);
  if (extra->count == 0 || extra->values[0] == 0)
    return PETRA_OK;
  const int64_t at_last = extra->values[extra->count - 1];
  PETRA_TRY(check_order(config, method));
  PETRA_TRY(check_head(config, at_last));
  method->extra_delay = *extra;
  method->split_head |= at_last > 0;
  return PETRA_OK;
}

petra_status petra_method_check_stages(const petra_config *config, int32_t stages) {
  const int64_t count = config->method.extra_delay.count;
  if (count <= 1 || count == stages)
    return PETRA_OK;
  return petra_config_fail(config, key, "%lld numbers for %d stages; expected one per stage, or one for all",
                           (long long)count, stages);
}
