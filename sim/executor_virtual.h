/* The virtual executor: a discrete-event loop in which every stage has a device of its own with one or two engines, and
 * messages between neighbours arrive at once. With two engines F runs on the first, B (the fused head too), U and E on the
 * second. All actions that start at one moment reach the worker as one group, ordered by stage and engine. */
#ifndef PETRA_SIM_EXECUTOR_VIRTUAL_H
#define PETRA_SIM_EXECUTOR_VIRTUAL_H

#include "exec/executor.h"
#include "sim/cost.h"

typedef struct petra_executor_virtual_options {
  petra_cost cost;
  bool recomputes; /* B reconstructs or recomputes first, but at the last stage, which has its graph from the same action */
  int engines;     /* of each device: 1 or 2 */
} petra_executor_virtual_options;

petra_status petra_executor_virtual_create(const petra_executor_virtual_options *options, petra_executor **out);

#endif
