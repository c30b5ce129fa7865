#include "schedule/method.h"

#include "base/log.h"

#include <string.h>

static const petra_method methods[] = {
    {.name = "backprop",
     .help = "naive model parallelism: one microbatch at a time, graphs kept",
     .program = &petra_program_sequential,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "graph",
     .trains = true},
    {.name = "reversible",
     .help = "backprop that reconstructs the inputs of reversible blocks instead of keeping graphs",
     .program = &petra_program_sequential,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .invert_weights = "latest",
     .keep = "nothing",
     .inverts = true,
     .recomputes = true,
     .trains = true},
    {.name = "checkpoint",
     .help = "backprop that keeps inputs and computes the graphs again",
     .program = &petra_program_sequential,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "input",
     .recomputes = true},
    {.name = "gpipe",
     .help = "all forwards of a flush, then all backwards; graphs kept",
     .program = &petra_program_gpipe,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "graph",
     .split_head = true},
    {.name = "gpipe-checkpoint",
     .help = "gpipe that keeps inputs and computes the graphs again",
     .program = &petra_program_gpipe,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "input",
     .recomputes = true,
     .split_head = true},
    {.name = "1f1b",
     .help = "forward and backward in turns with a flush (DAPPLE)",
     .program = &petra_program_1f1b,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "graph",
     .split_head = true},
    {.name = "interleaved",
     .help = "1f1b with several chunks of the network on every device (Megatron-LM)",
     .program = &petra_program_interleaved,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "graph",
     .split_head = true,
     .chunks = 2},
    {.name = "zb-h1",
     .help = "1f1b whose weight gradients fill the time in which it waits (zero bubble)",
     .program = &petra_program_zb_h1,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "graph",
     .split_head = true},
    {.name = "pipedream",
     .help = "1f1b without a flush; backward with the weights of its forward",
     .program = &petra_program_1f1b_async,
     .forward_weights = "latest",
     .backward_weights = "stashed",
     .keep = "graph",
     .split_head = true},
    {.name = "pipedream-2bw",
     .help = "1f1b without a flush, two versions of the weights; accumulate >= J",
     .program = &petra_program_1f1b_async,
     .forward_weights = "double_buffer",
     .backward_weights = "double_buffer",
     .keep = "graph",
     .split_head = true},
    {.name = "delayed",
     .help = "every stage at once with delayed gradients, graphs and weights of the forward kept",
     .program = &petra_program_lockstep,
     .forward_weights = "latest",
     .backward_weights = "stashed",
     .keep = "graph"},
    {.name = "dsp",
     .help = "delayed gradients; inputs kept, graphs computed again with the latest weights",
     .program = &petra_program_lockstep,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .keep = "input",
     .recomputes = true},
    {.name = "delayed-reversible",
     .help = "delayed gradients; inputs reconstructed with the weights of the forward, which are kept",
     .program = &petra_program_lockstep,
     .forward_weights = "latest",
     .backward_weights = "stashed",
     .invert_weights = "stashed",
     .keep = "nothing",
     .inverts = true,
     .recomputes = true},
    {.name = "approximate-input",
     .help = "delayed gradients at the weights of the forward, inputs reconstructed with the latest weights",
     .program = &petra_program_lockstep,
     .forward_weights = "latest",
     .backward_weights = "stashed",
     .invert_weights = "latest",
     .keep = "nothing",
     .inverts = true,
     .recomputes = true},
    {.name = "petra",
     .help = "every stage at once with delayed gradients, inputs reconstructed with the latest weights",
     .program = &petra_program_lockstep,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .invert_weights = "latest",
     .keep = "nothing",
     .inverts = true,
     .recomputes = true,
     .trains = true},
    {.name = "petra-arrival",
     .help = "petra without ticks: a stage takes what arrived first, backward before forward",
     .program = &petra_program_arrival,
     .forward_weights = "latest",
     .backward_weights = "latest",
     .invert_weights = "latest",
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

const petra_method *petra_method_find(const char *name) {
  for (int i = 0; i < petra_method_count(); i++)
    if (strcmp(methods[i].name, name) == 0)
      return &methods[i];
  return NULL;
}

/* "a, b, c" */
static void list_names(bool trains_only, char *names, size_t size) {
  names[0] = 0;
  for (int i = 0; i < petra_method_count(); i++) {
    if (trains_only && !methods[i].trains)
      continue;
    strncat(names, names[0] ? ", " : "", size - strlen(names) - 1);
    strncat(names, methods[i].name, size - strlen(names) - 1);
  }
}

petra_status petra_method_from_config(const petra_config *config, const petra_method **out) {
  char names[512];
  const petra_method *method = petra_method_find(config->method.name);
  if (method) {
    *out = method;
    return PETRA_OK;
  }
  list_names(false, names, sizeof names);
  return petra_config_fail(config, "method.name", "no method '%s'; expected one of %s", config->method.name,
                           names);
}

petra_status petra_method_check_trains(const petra_method *method) {
  char names[512];
  if (method->trains)
    return PETRA_OK;
  list_names(true, names, sizeof names);
  return petra_fail(PETRA_UNSUPPORTED, "method %s can be simulated only; petra train runs %s", method->name,
                    names);
}

static int64_t updates_in(int64_t microbatches, int64_t accumulate) {
  return (microbatches + accumulate - 1) / accumulate;
}

int64_t petra_method_lag(const petra_method *method, int32_t stages, int32_t stage, int64_t accumulate) {
  if (method->program->arrival)
    return -1;
  if (method->program->ticks)
    return updates_in(petra_program_delay(stages, stage) + method->split_head, accumulate);
  if (method->program == &petra_program_1f1b_async)
    return updates_in(stages - (strcmp(method->forward_weights, "double_buffer") == 0 ? 1 : stage),
                      accumulate);
  return 0;
}
