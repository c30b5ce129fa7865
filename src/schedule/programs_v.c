/* SPDX-License-Identifier: Apache-2.0 */
/* The programs with two stages per device in a V: zb-v, v-half, v-min and dualpipe-v. */
#include "base/mem.h"
#include "schedule/program_order.h"
#include "schedule/schedule.h"

/* --- the writer of orders in a V --- */

/* Writes the order of one flush, device by device, for programs with two stages per device: chunk 0, on the way down a
 * V, and chunk 1, on the way up. The microbatches of a chunk come in the order of their numbers. Microbatches from
 * `limit` on are omitted. */
typedef struct flush_writer {
  petra_schedule_builder builder;
  int64_t limit;
  int32_t stage[2];
  int64_t forwards[2], backwards[2]; /* number of F and B written so far, for each chunk of the device */
  petra_action *owed;                /* the W of split B that are not written yet */
  int64_t owed_first, owed_count;
} flush_writer;

/* Writes one device of a V: `above` devices are between it and the top; it has `microbatches`, at least 2 D. */
typedef petra_status (*v_device)(flush_writer *writer, int64_t microbatches, int32_t devices, int32_t above);

static petra_status begin_device(flush_writer *writer, int32_t stage_down, int32_t stage_up) {
  for (int chunk = 0; chunk < 2; chunk++)
    writer->forwards[chunk] = writer->backwards[chunk] = 0;
  writer->stage[0] = stage_down;
  writer->stage[1] = stage_up;
  writer->owed_first = writer->owed_count = 0;
  return petra_schedule_add_device(&writer->builder);
}

static petra_status add(flush_writer *writer, petra_action action, bool joined) {
  if (action.microbatch >= writer->limit)
    return PETRA_OK;
  return petra_schedule_add(&writer->builder, (petra_schedule_entry){.action = action, .joined = joined});
}

static petra_status forward(flush_writer *writer, int chunk, bool joined) {
  return add(writer, (petra_action){writer->stage[chunk], PETRA_ACTION_FORWARD, writer->forwards[chunk]++}, joined);
}

static petra_status write_forward(flush_writer *writer, int chunk) {
  return forward(writer, chunk, false);
}

/* Writes a backward that is not split: B and W in one step. */
static petra_status write_backward(flush_writer *writer, int chunk) {
  const int64_t microbatch = writer->backwards[chunk]++;
  PETRA_TRY(add(writer, (petra_action){writer->stage[chunk], PETRA_ACTION_BACKWARD, microbatch}, true));
  return add(writer, (petra_action){writer->stage[chunk], PETRA_ACTION_WEIGHT_GRADIENT, microbatch}, false);
}

/* Writes F of one chunk and the backward of the other chunk in one step. */
static petra_status write_overlapped(flush_writer *writer, int forward_chunk, int backward_chunk) {
  PETRA_TRY(forward(writer, forward_chunk, writer->backwards[backward_chunk] < writer->limit));
  return write_backward(writer, backward_chunk);
}

/* Writes B alone. */
static petra_status write_split_backward(flush_writer *writer, int chunk) {
  const int64_t microbatch = writer->backwards[chunk]++;
  writer->owed[writer->owed_count++] = (petra_action){writer->stage[chunk], PETRA_ACTION_WEIGHT_GRADIENT, microbatch};
  return add(writer, (petra_action){writer->stage[chunk], PETRA_ACTION_BACKWARD, microbatch}, false);
}

/* Writes W of the first split B whose W is not written yet; does nothing if there is none. */
static petra_status write_weight_gradient(flush_writer *writer) {
  return writer->owed_first < writer->owed_count ? add(writer, writer->owed[writer->owed_first++], false) : PETRA_OK;
}

/* Writes all W that are not written yet. */
static petra_status write_weight_gradients(flush_writer *writer) {
  while (writer->owed_first < writer->owed_count)
    PETRA_TRY(write_weight_gradient(writer));
  return PETRA_OK;
}

/* Writes the devices of a V, one after the other. Microbatches from options->accumulate on are omitted. */
static petra_status write_v(const petra_program_options *options, v_device write_device, const char *name,
                            petra_schedule **out) {
  const int32_t devices = petra_program_devices(options);
  const int64_t microbatches = options->accumulate > 2 * devices ? options->accumulate : 2 * devices;
  flush_writer w = {.builder.schedule.flush = true, .limit = options->accumulate};
  petra_status status = petra_allocate(&w.owed, 2 * (size_t)microbatches, sizeof *w.owed);
  for (int32_t d = 0; d < devices && status == PETRA_OK; d++) {
    status = begin_device(&w, d + 1, 2 * devices - d);
    if (status == PETRA_OK)
      status = write_device(&w, microbatches, devices, d);
  }
  petra_free(w.owed);
  return petra_schedule_finish(&w.builder, status, name, out);
}

/* Calls petra_order_find with the order of `write_device` as the seed. */
static petra_status order_find_v(const petra_program_options *options, const petra_order_costs *costs,
                                 v_device write_device, int64_t limit, const petra_order_rule *rules, int rule_count,
                                 const char *name, petra_schedule **out) {
  petra_order_search_options search = {.options = options, .limit = limit, .rules = rules, .rule_count = rule_count};
  PETRA_DESTROYED(petra_schedule_destroy) petra_schedule *seed = NULL;
  PETRA_TRY(write_v(options, write_device, name, &seed));
  search.seed = seed;
  return petra_order_find(&search, costs, name, out);
}

/* --- the programs --- */

/* zb-v: two stages per device in a V, W split from B. A device keeps as many microbatches as the first device of 1f1b.
 * If F, B and W take the same time, it waits only at the start or at the end of a flush (Qi et al., "Zero bubble
 * pipeline parallelism"). */

/* Writes a device of the order for equal costs; `above` devices are between it and the top of the V. */
static petra_status zb_v_write_device(flush_writer *w, int64_t microbatches, int32_t devices, int32_t above) {
  for (int64_t i = 0; i < 2 * ((int64_t)devices - above) - 1; i++)
    PETRA_TRY(write_forward(w, 0));
  for (int64_t i = 0; i < above; i++) {
    PETRA_TRY(write_forward(w, 1));
    PETRA_TRY(write_forward(w, 0));
  }
  for (int64_t i = 0; i < devices - above; i++) {
    PETRA_TRY(write_forward(w, 1));
    PETRA_TRY(write_split_backward(w, 1));
    PETRA_TRY(write_weight_gradient(w));
  }
  while (w->forwards[1] < microbatches) {
    if (w->forwards[0] < microbatches)
      PETRA_TRY(write_forward(w, 0));
    PETRA_TRY(write_split_backward(w, 0));
    PETRA_TRY(write_weight_gradient(w));
    PETRA_TRY(write_forward(w, 1));
    PETRA_TRY(write_split_backward(w, 1));
    PETRA_TRY(write_weight_gradient(w));
  }
  while (w->backwards[0] < microbatches) { /* B first; W if B cannot follow at once */
    PETRA_TRY(write_split_backward(w, 0));
    if (w->backwards[1] < microbatches)
      PETRA_TRY(write_split_backward(w, 1));
    else
      PETRA_TRY(write_weight_gradient(w));
  }
  return write_weight_gradients(w);
}

static petra_status zb_v_write(const petra_program_options *options, const petra_order_costs *costs,
                               petra_schedule **out) {
  static const petra_order_rule rule = {.down = 3, .up = 3, .slack = -1};
  return order_find_v(options, costs, zb_v_write_device, 2 * (int64_t)petra_program_devices(options), &rule, 1, "zb-v",
                      out);
}

const petra_program_ops petra_program_zb_v = {
    .name = "zb-v", PETRA_WRITTEN_PROGRAM, .layout = PETRA_LAYOUT_V, .write = zb_v_write};

/* v-half and v-min: two stages per device in a V, W split from B. They keep about a half and a third of the activations
 * that the first device of 1f1b keeps (Qi et al., "Pipeline parallelism with controllable memory"). The order repeats a
 * building block: the times of one microbatch, in units of F = B = W, every 6 units. W fills the gaps of the block. */

enum { PERIOD = 6 };

/* The times of F at chunks 0 and 1, then of B at chunks 1 and 0. */
typedef struct block {
  int64_t at[4];
} block;

static petra_status write_blocks(flush_writer *w, int64_t microbatches, int32_t devices, const block *times) {
  for (int64_t t = 0; t < PERIOD * (microbatches + devices + 1); t++) {
    int pass = 0;
    while (pass < 4 && !(t >= times->at[pass] && (t - times->at[pass]) % PERIOD == 0 &&
                         (t - times->at[pass]) / PERIOD < microbatches))
      pass++;
    if (pass == 4)
      PETRA_TRY(write_weight_gradient(w));
    else if (pass < 2)
      PETRA_TRY(write_forward(w, pass));
    else
      PETRA_TRY(write_split_backward(w, 3 - pass));
  }
  return write_weight_gradients(w);
}

static petra_status write_half_device(flush_writer *w, int64_t microbatches, int32_t devices, int32_t above) {
  const int64_t d = devices, i = above, gap = d % 2 == 0 ? 3 : 0;
  return write_blocks(w, microbatches, devices,
                      &(block){{2 * i, 3 * d - 2 - i, 3 * d - 1 + gap + 2 * i, 6 * d - 2 + gap - i}});
}

static petra_status write_min_device(flush_writer *w, int64_t microbatches, int32_t devices, int32_t above) {
  const int64_t d = devices, i = above, gap = d % 3 == 0 ? 2 : 0;
  return write_blocks(w, microbatches, devices, &(block){{i, 2 * d - 1 - i, 2 * d + gap + i, 4 * d + gap - 1 - i}});
}

static petra_status write_half(const petra_program_options *options, const petra_order_costs *costs,
                               petra_schedule **out) {
  static const petra_order_rule rules[] = {{4, 2, false, 1}, {2, 3, false, 1}, {2, 2, false, 1}};
  return order_find_v(options, costs, write_half_device, 2 * (((int64_t)petra_program_devices(options) + 2) / 2), rules,
                      3, "v-half", out);
}

static petra_status write_min(const petra_program_options *options, const petra_order_costs *costs,
                              petra_schedule **out) {
  static const petra_order_rule rules[] = {{2, 2, false, 1}, {2, 2, true, 1}, {2, 2, false, 0}};
  return order_find_v(options, costs, write_min_device, 2 * (((int64_t)petra_program_devices(options) + 4) / 3), rules,
                      3, "v-min", out);
}

const petra_program_ops petra_program_v_half = {
    .name = "v-half", PETRA_WRITTEN_PROGRAM, .layout = PETRA_LAYOUT_V, .write = write_half};

const petra_program_ops petra_program_v_min = {
    .name = "v-min", PETRA_WRITTEN_PROGRAM, .layout = PETRA_LAYOUT_V, .write = write_min};

/* dualpipe-v: two stages per device in a V. In the middle of a flush, a device overlaps the F of one of its stages with
 * the backward of the other stage: they are one step. Towards the end W is split from B and fills the time in which the
 * device would wait (DeepSeek-AI, DualPipe, "cut in half"). The order is made for at least 2 D microbatches; a smaller
 * flush omits the microbatches that it does not have. */

static petra_status dualpipe_v_write_device(flush_writer *w, int64_t microbatches, int32_t devices, int32_t above) {
  const int64_t away = devices - 1 - above; /* number of devices between this one and the bottom of the V */
  for (int64_t i = 0; i < 2 * away; i++)
    PETRA_TRY(write_forward(w, 0));
  for (int64_t i = 0; i <= above; i++) {
    PETRA_TRY(write_forward(w, 0));
    PETRA_TRY(write_forward(w, 1));
  }
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(write_split_backward(w, 1));
    PETRA_TRY(write_weight_gradient(w));
    PETRA_TRY(write_forward(w, 1));
  }
  for (int64_t i = 0; i < microbatches - 2 * (int64_t)devices + above + 1; i++) {
    if (i == 0 && away == 0) { /* the F of this stage comes first, so F and the backward cannot overlap */
      PETRA_TRY(write_forward(w, 0));
      PETRA_TRY(write_backward(w, 1));
    } else {
      PETRA_TRY(write_overlapped(w, 0, 1));
    }
    PETRA_TRY(write_overlapped(w, 1, 0));
  }
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(write_backward(w, 1));
    PETRA_TRY(write_overlapped(w, 1, 0));
  }
  for (int64_t i = 0; i < 2 * ((int64_t)above + 1); i++)
    PETRA_TRY(i <= above ? write_backward(w, 1 - i % 2) : write_split_backward(w, 1 - i % 2));
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(write_weight_gradient(w));
    PETRA_TRY(write_split_backward(w, 0));
  }
  return write_weight_gradients(w);
}

static petra_status dualpipe_v_write(const petra_program_options *options, const petra_order_costs *costs,
                                     petra_schedule **out) {
  (void)costs;
  return write_v(options, dualpipe_v_write_device, "dualpipe-v", out);
}

const petra_program_ops petra_program_dualpipe_v = {
    .name = "dualpipe-v", PETRA_WRITTEN_PROGRAM, .layout = PETRA_LAYOUT_V, .write = dualpipe_v_write};
