/* What the files plan*.c share. */
#ifndef PETRA_RUN_PLAN_PRIVATE_H
#define PETRA_RUN_PLAN_PRIVATE_H

#include "run/plan.h"

void petra_plan_order_destroy(petra_plan_order *order);

#endif
