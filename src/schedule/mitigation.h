/* Which mitigations of delay a config asks for: whether a method can have them, and the delay that they go by. */
#ifndef PETRA_SCHEDULE_MITIGATION_H
#define PETRA_SCHEDULE_MITIGATION_H

#include "schedule/method.h"

/* The key of the first mitigation that is on, "method.mitigation.spike_compensation"; NULL: none is. */
const char *petra_mitigation_key(const petra_mitigation *mitigation);

/* PETRA_CONFIG, logged, where a mitigation has no delay to go by (a synchronous method, one by arrival, one with a sync
 * period), or where two contradict each other or the optimiser. */
petra_status petra_mitigation_check(const petra_config *config, const petra_method *method);

/* Delay of a stage in updates, as the mitigations take it: the mean number of updates between a microbatch's F and its B
 * once the pipeline is full, or 1 where weights are double-buffered. With k microbatches an update it may be a fraction:
 * petra_method_distance / k. Not for a method by arrival or with a sync period. */
double petra_method_delay(const petra_method *method, int32_t stages, int32_t stage);

#endif
