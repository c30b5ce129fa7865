/* SPDX-License-Identifier: Apache-2.0 */
/* interleaved-zb: interleaved with W split from B. One F less per device below comes before the first B, and on device d
 * W comes d - 1 passes after its B, so that it fills the end of a flush as in zb-h1. */
#include "schedule/order_search.h"
#include "schedule/program_order.h"
#include "schedule/schedule.h"

/* A device of the order for equal costs. */
typedef struct place {
  petra_schedule_builder *builder;
  int64_t limit;                  /* microbatches from this one on are left out */
  int32_t devices, chunks, above; /* above: number of devices before this one */
} place;

/* Adds pass `index` of the device, in groups of D microbatches, chunk by chunk. */
static petra_status add(const place *p, petra_action_kind kind, int64_t index) {
  const int32_t chunk = (int32_t)(index / p->devices % p->chunks);
  const int32_t at = kind == PETRA_ACTION_FORWARD ? chunk : p->chunks - 1 - chunk;
  const int64_t microbatch = index / ((int64_t)p->devices * p->chunks) * p->devices + index % p->devices;
  if (microbatch >= p->limit)
    return PETRA_OK;
  return petra_schedule_add(p->builder,
                            (petra_schedule_entry){.action = {at * p->devices + p->above + 1, kind, microbatch}});
}

static petra_status write_device(const place *p, int64_t passes) {
  const int64_t ahead = ((int64_t)p->chunks - 1) * p->devices + p->devices - 1 - p->above;
  const int64_t warm = ahead < passes ? ahead : passes;
  int64_t weights = 0;
  PETRA_TRY(petra_schedule_add_device(p->builder));
  for (int64_t i = 0; i < warm; i++)
    PETRA_TRY(add(p, PETRA_ACTION_FORWARD, i));
  for (int64_t i = 0; i < passes; i++) {
    if (warm + i < passes)
      PETRA_TRY(add(p, PETRA_ACTION_FORWARD, warm + i));
    PETRA_TRY(add(p, PETRA_ACTION_BACKWARD, i));
    if (i >= p->above)
      PETRA_TRY(add(p, PETRA_ACTION_WEIGHT_GRADIENT, weights++));
  }
  while (weights < passes)
    PETRA_TRY(add(p, PETRA_ACTION_WEIGHT_GRADIENT, weights++));
  return PETRA_OK;
}

static petra_status write(const petra_program_options *options, const petra_order_costs *costs, petra_schedule **out) {
  static const petra_order_rule rules[] = {{6, 2, false, -1}, {2, 5, false, -1}};
  const int32_t devices = petra_program_devices(options), chunks = petra_program_chunks(options);
  const int64_t groups = (options->accumulate + devices - 1) / devices;
  petra_schedule_builder builder;
  petra_schedule *seed = NULL;
  PETRA_TRY(petra_schedule_builder_init(&builder));
  petra_status status = PETRA_OK;
  for (int32_t d = 0; d < devices && status == PETRA_OK; d++)
    status = write_device(&(place){&builder, options->accumulate, devices, chunks, d}, groups * devices * chunks);
  if (status == PETRA_OK)
    status = petra_schedule_finish(&builder, "interleaved-zb", &seed);
  const petra_order_search_options search = {
      .options = options, .limit = options->stages, .rules = rules, .rule_count = 2, .seed = seed};
  if (status == PETRA_OK)
    status = petra_order_find(&search, costs, "interleaved-zb", out);
  petra_schedule_destroy(seed);
  petra_schedule_builder_fini(&builder);
  return status;
}

const petra_program_ops petra_program_interleaved_zb = {.name = "interleaved-zb",
                                                        .repeats = true,
                                                        .moment = PETRA_MOMENT_WINDOW,
                                                        .split_head = true,
                                                        .split_backward = true,
                                                        .layout = PETRA_LAYOUT_LOOP,
                                                        .next = petra_flush_list_next,
                                                        .write = write,
                                                        .check = petra_flush_check};
