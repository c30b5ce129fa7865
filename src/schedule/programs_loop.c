/* SPDX-License-Identifier: Apache-2.0 */
/* interleaved and looped-bfs: v chunks per device in a loop. Stage s is on device (s - 1) mod D + 1.
 *
 * interleaved: 1f1b with chunks. Microbatches go in groups of D: a device takes a group through its first chunk, then
 * the same group through its second, and so on (Narayanan et al., "Efficient large-scale language model training on GPU
 * clusters"). The number of microbatches of a flush is a multiple of D; if a smaller last flush has another number, it
 * does all its F first.
 *
 * looped-bfs: gpipe with chunks. All microbatches of a flush are one group, and all F come first (Lamy-Poirier,
 * "Breadth-first pipeline parallelism"). Every stage does its B in the order of microbatches. This is the order in
 * which the other synchronous programs sum gradients. */
#include "base/log.h"
#include "schedule/program_order.h"
#include "schedule/schedule.h"

/* The possible content of a slot, in this order; each slot after the last one contains the U and the E of one chunk. */
enum { ITEM_FORWARD, ITEM_BACKWARD, ITEM_EVALUATE, ITEMS };

typedef struct place {
  int32_t devices, chunks, device;
  petra_flush flush;
  int64_t group;        /* microbatches that go through a chunk together */
  int64_t total, ahead; /* number of passes of one kind on the device in this flush; number of F before the first B */
} place;

static place place_of(const petra_program_options *options, int32_t device, int64_t round, bool breadth_first) {
  place p = {.devices = petra_program_devices(options), .chunks = petra_program_chunks(options), .device = device};
  p.flush = petra_flush_of(options, round);
  p.total = p.flush.count * p.chunks;
  p.group = breadth_first ? p.flush.count : p.devices;
  p.ahead = 2 * ((int64_t)p.devices - device) + (int64_t)(p.chunks - 1) * p.devices;
  if (p.ahead > p.total || p.flush.count % p.devices || breadth_first)
    p.ahead = p.total;
  return p;
}

/* Finds pass number `index` of the device: its stage and microbatch. In an incomplete flush the groups share the
 * microbatches that remain. */
static petra_action pass(const place *p, petra_action_kind kind, int64_t index) {
  int64_t group = index / (p->group * p->chunks), rest = index % (p->group * p->chunks);
  int64_t left = p->flush.count - group * p->group, size = left < p->group ? left : p->group;
  int32_t chunk = (int32_t)(rest / size);
  if (kind != PETRA_ACTION_FORWARD)
    chunk = p->chunks - 1 - chunk;
  return (petra_action){p->device + chunk * p->devices, kind, p->flush.first + group * p->group + rest % size};
}

static bool in_slot(const petra_program_options *options, const place *p, int64_t slot, int item, petra_action *out) {
  if (item == ITEM_FORWARD) {
    if (slot >= p->total)
      return false;
    *out = pass(p, PETRA_ACTION_FORWARD, slot);
    return !petra_program_fused(options, out->stage);
  }
  if (slot < p->ahead)
    return false;
  *out = pass(p, PETRA_ACTION_BACKWARD, slot - p->ahead);
  if (item == ITEM_BACKWARD)
    return true;
  out->kind = PETRA_ACTION_EVALUATE;
  return out->microbatch + 1 < p->flush.first + p->flush.count && petra_program_evaluates(options, out->microbatch);
}

/* Gets U, then E, of chunk `chunk`. */
static bool after_slots(const petra_program_options *options, const place *p, int64_t chunk, int item,
                        petra_action *out) {
  int64_t last = p->flush.first + p->flush.count - 1;
  *out = (petra_action){p->device + (int32_t)chunk * p->devices, PETRA_ACTION_UPDATE, last};
  if (item == 0)
    return p->flush.count == options->accumulate;
  out->kind = PETRA_ACTION_EVALUATE;
  return item == 1 && petra_program_evaluates(options, last);
}

static bool next_of(const petra_program_options *options, int32_t device, petra_cursor *cursor, bool breadth_first,
                    petra_action *out, int64_t *round) {
  *round = 0;
  while (cursor->round * options->accumulate < options->microbatches) {
    const place p = place_of(options, device, cursor->round, breadth_first);
    const int64_t slot = cursor->step / ITEMS, slots = p.total + p.ahead;
    const int item = cursor->step % ITEMS;
    if (slot == slots + p.chunks) {
      *cursor = (petra_cursor){.round = cursor->round + 1};
      continue;
    }
    cursor->step++;
    if (slot < slots ? in_slot(options, &p, slot, item, out) : after_slots(options, &p, slot - slots, item, out))
      return true;
  }
  return false;
}

static bool next_interleaved(const petra_program_options *options, int32_t device, petra_cursor *cursor,
                             petra_action *out, int64_t *round) {
  return next_of(options, device, cursor, false, out, round);
}

static bool next_looped_bfs(const petra_program_options *options, int32_t device, petra_cursor *cursor,
                            petra_action *out, int64_t *round) {
  return next_of(options, device, cursor, true, out, round);
}

static petra_status check(const petra_program_ops *program, const petra_program_options *options) {
  const int32_t devices = petra_program_devices(options);
  if (options->accumulate % devices)
    return petra_fail(PETRA_SCHEDULE,
                      "program %s: %lld microbatches per flush on %d devices; expected a multiple of %d "
                      "(method.accumulate)",
                      program->name, (long long)options->accumulate, devices, devices);
  return petra_flush_check(program, options);
}

const petra_program_ops petra_program_interleaved = {.name = "interleaved",
                                                     PETRA_SYNCHRONOUS_PROGRAM,
                                                     .layout = PETRA_LAYOUT_LOOP,
                                                     .next = next_interleaved,
                                                     .check = check};

const petra_program_ops petra_program_looped_bfs = {.name = "looped-bfs",
                                                    PETRA_SYNCHRONOUS_PROGRAM,
                                                    .layout = PETRA_LAYOUT_LOOP,
                                                    .early_recompute = true,
                                                    .next = next_looped_bfs,
                                                    .check = petra_flush_check};

/* interleaved-zb: interleaved with W split from B. For each device below, one F less comes before the first B. On
 * device d, W comes d - 1 passes after its B, so that it fills the end of a flush as in zb-h1. */

/* Adds pass `index` of a device to the order for equal costs. Microbatches from `limit` on are left out. */
static petra_status add_pass(petra_schedule_builder *b, const place *p, int64_t limit, petra_action_kind kind,
                             int64_t index) {
  const petra_action action = pass(p, kind, index);
  return action.microbatch < limit ? petra_schedule_add(b, (petra_schedule_entry){.action = action}) : PETRA_OK;
}

static petra_status write_device(petra_schedule_builder *b, const place *p, int64_t limit) {
  const int64_t ahead = (int64_t)p->chunks * p->devices - p->device;
  const int64_t warm = ahead < p->total ? ahead : p->total;
  int64_t weights = 0;
  PETRA_TRY(petra_schedule_add_device(b));
  for (int64_t i = 0; i < warm; i++)
    PETRA_TRY(add_pass(b, p, limit, PETRA_ACTION_FORWARD, i));
  for (int64_t i = 0; i < p->total; i++) {
    if (warm + i < p->total)
      PETRA_TRY(add_pass(b, p, limit, PETRA_ACTION_FORWARD, warm + i));
    PETRA_TRY(add_pass(b, p, limit, PETRA_ACTION_BACKWARD, i));
    if (i >= p->device - 1)
      PETRA_TRY(add_pass(b, p, limit, PETRA_ACTION_WEIGHT_GRADIENT, weights++));
  }
  while (weights < p->total)
    PETRA_TRY(add_pass(b, p, limit, PETRA_ACTION_WEIGHT_GRADIENT, weights++));
  return PETRA_OK;
}

static petra_status write_zb(const petra_program_options *options, const petra_order_costs *costs,
                             petra_schedule **out) {
  static const petra_order_rule rules[] = {{6, 2, false, -1}, {2, 5, false, -1}};
  const int32_t devices = petra_program_devices(options), chunks = petra_program_chunks(options);
  const int64_t groups = (options->accumulate + devices - 1) / devices;
  petra_schedule_builder builder = {0};
  PETRA_DESTROYED(petra_schedule_destroy) petra_schedule *seed = NULL;
  petra_status status = PETRA_OK;
  for (int32_t d = 1; d <= devices && status == PETRA_OK; d++) {
    const place p = {devices, chunks, d, {0, groups * devices}, .group = devices, .total = groups * devices * chunks};
    status = write_device(&builder, &p, options->accumulate);
  }
  PETRA_TRY(petra_schedule_finish(&builder, status, "interleaved-zb", &seed));
  const petra_order_search_options search = {
      .options = options, .limit = options->stages, .rules = rules, .rule_count = 2, .seed = seed};
  return petra_order_find(&search, costs, "interleaved-zb", out);
}

const petra_program_ops petra_program_interleaved_zb = {
    .name = "interleaved-zb", PETRA_WRITTEN_PROGRAM, .layout = PETRA_LAYOUT_LOOP, .write = write_zb};
