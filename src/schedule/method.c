#include "schedule/method.h"

#include <string.h>

static const petra_method methods[] = {
    {.name = "backprop",
     .help = "naive model parallelism: one microbatch at a time, graphs kept",
     .program = &petra_program_sequential,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "graph"},
    {.name = "reversible",
     .help = "backprop that reconstructs the inputs of reversible blocks instead of keeping graphs",
     .program = &petra_program_sequential,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "nothing",
     .inverts = true,
     .recomputes = true},
    {.name = "petra",
     .help = "every stage at once with delayed gradients, inputs reconstructed with the latest weights",
     .program = &petra_program_lockstep,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "nothing",
     .inverts = true,
     .recomputes = true},
};

int petra_method_count(void) {
  return (int)(sizeof methods / sizeof *methods);
}

const petra_method *petra_method_get(int index) {
  return &methods[index];
}

petra_status petra_method_from_config(const petra_config *config, const petra_method **out) {
  for (int i = 0; i < petra_method_count(); i++)
    if (strcmp(methods[i].name, config->method.name) == 0) {
      *out = &methods[i];
      return PETRA_OK;
    }
  char names[256] = "";
  for (int i = 0; i < petra_method_count(); i++) {
    strncat(names, i ? ", " : "", sizeof names - strlen(names) - 1);
    strncat(names, methods[i].name, sizeof names - strlen(names) - 1);
  }
  return petra_config_fail(config, "method.name", "no method '%s'; expected one of %s", config->method.name, names);
}

int64_t petra_method_lag(const petra_method *method, int32_t stages, int32_t stage, int64_t accumulate) {
  if (!method->program->ticks)
    return 0;
  return (petra_program_delay(stages, stage) + accumulate - 1) / accumulate;
}
