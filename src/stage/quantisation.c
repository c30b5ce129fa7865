/* SPDX-License-Identifier: Apache-2.0 */
/* Converts messages of a stage, and the inputs and graphs that it keeps, to other number formats (backend/quantise.h)
 * and back. Source of the rules: docs/semantics/quantisation.md. */
#include "backend/backend.h"
#include "base/mem.h"
#include "stage/stage_archive.h"
#include "stage/stage_private.h"

/* Each tensor that a block quantises has its own position among the random draws. The order is: the tensors of the
 * message that the block sends up, the tensors of the message that it sends down, its kept inputs, its kept graph. */
enum { PLACES = 64, PLACE_UP = 0, PLACE_DOWN = 4, PLACE_INPUT = 8, PLACE_GRAPH = 10 };
_Static_assert(PLACE_GRAPH + PETRA_GRAPH_TENSORS <= PLACES, "the tensors of a block have different numbers");

static petra_draws draws_of(const petra_stage *stage, const petra_block *block, int place, int64_t microbatch) {
  const petra_stage_formats *formats = &stage->options.formats;
  return (petra_draws){.seed = formats->seed,
                       .place = (uint32_t)(block->number * PLACES + place),
                       .microbatch = microbatch,
                       .first_sample = formats->first_sample};
}

/* Returns the quantised tensor. */
static petra_status quantise(petra_stage *stage, const petra_tensor *x, petra_format format, const petra_draws *draws,
                             petra_memory_category category, petra_tensor **out) {
  const int32_t shape[4] = {x->shape[0], (int32_t)petra_quantised_bytes(format, x->elements / x->shape[0]), 1, 1};
  PETRA_TRY(petra_compute_tensor(&stage->compute, PETRA_TENSOR_QUANTISED, shape, category, out));
  petra_status status = petra_op_quantise(stage->compute.backend, x, format, draws, *out);
  if (status != PETRA_OK)
    petra_tensor_release(out);
  return status;
}

/* Returns a stream of this shape from its quantised tensor. */
static petra_status dequantise(petra_stage *stage, const petra_tensor *x, petra_format format,
                               const petra_stream_shape *stream, petra_memory_category category, petra_tensor **out) {
  int32_t shape[4];
  petra_stream_tensor_shape(stream, x->shape[0], shape);
  PETRA_TRY(petra_compute_tensor(&stage->compute, stream->kind, shape, category, out));
  petra_status status = petra_op_dequantise(stage->compute.backend, x, format, *out);
  if (status != PETRA_OK)
    petra_tensor_release(out);
  return status;
}

/* --- messages --- */

void petra_message_parts(petra_message *message, petra_tensor **parts[PETRA_MESSAGE_PARTS]) {
  for (int i = 0; i < 2; i++) {
    parts[i] = &message->streams.tensor[i];
    parts[2 + i] = &message->gradients.tensor[i];
  }
}

/* A stage with an auxiliary head keeps its output for its B, which may come before or after the passes of the stage
 * above. Such a stage sends a copy, so that the tensors that a stage holds do not depend on the other stages. */
petra_status petra_stage_send(petra_stage *stage, bool up, int64_t microbatch, petra_message *message) {
  const petra_format format = up ? stage->options.formats.up : stage->options.formats.down;
  const petra_block *block = petra_stage_block(stage, up ? petra_stage_network_blocks(stage) - 1 : 0);
  petra_tensor **parts[PETRA_MESSAGE_PARTS];
  petra_message_parts(message, parts);
  if (format == PETRA_FORMAT_NATIVE && stage->options.auxiliary == 0)
    return PETRA_OK;
  for (int i = 0; i < PETRA_MESSAGE_PARTS; i++) {
    const petra_draws draws = draws_of(stage, block, (up ? PLACE_UP : PLACE_DOWN) + i, microbatch);
    petra_tensor *sent;
    if (!*parts[i])
      continue;
    PETRA_TRY(format == PETRA_FORMAT_NATIVE
                  ? petra_compute_copy(&stage->compute, *parts[i], PETRA_MEMORY_MESSAGES, &sent)
                  : quantise(stage, *parts[i], format, &draws, PETRA_MEMORY_MESSAGES, &sent));
    petra_tensor_release(parts[i]);
    *parts[i] = sent;
  }
  return PETRA_OK;
}

petra_status petra_stage_receive(petra_stage *stage, bool from_below, petra_message *message) {
  const petra_format format = from_below ? stage->options.formats.up : stage->options.formats.down;
  const petra_stream_shape *shape = from_below
                                        ? &petra_stage_block(stage, 0)->shape_in
                                        : &petra_stage_block(stage, petra_stage_network_blocks(stage) - 1)->shape_out;
  petra_tensor **parts[PETRA_MESSAGE_PARTS];
  petra_message_parts(message, parts);
  for (int i = 0; i < PETRA_MESSAGE_PARTS; i++) {
    petra_tensor *whole;
    if (!*parts[i] || (*parts[i])->kind != PETRA_TENSOR_QUANTISED)
      continue;
    PETRA_TRY(dequantise(stage, *parts[i], format, shape, PETRA_MEMORY_MESSAGES, &whole));
    petra_tensor_release(parts[i]);
    *parts[i] = whole;
  }
  return PETRA_OK;
}

void petra_message_forms(const petra_stage *stage, bool forward, bool exact, petra_tensor_form forms[4]) {
  const petra_block *first = petra_stage_block(stage, 0),
                    *last = petra_stage_block(stage, petra_stage_network_blocks(stage) - 1);
  const petra_stream_shape *shape = forward ? &first->shape_in : &last->shape_out;
  const petra_format format = forward ? stage->options.formats.up : stage->options.formats.down;
  const int streams = forward ? first->streams_in : last->streams_out;
  petra_streams_forms(forward || stage->options.rule.invert ? streams : 0, shape, PETRA_PRESENT, forms);
  petra_streams_forms(forward ? 0 : streams, shape, PETRA_PRESENT, forms + 2);
  for (int i = 0; i < PETRA_MESSAGE_PARTS && !exact && format != PETRA_FORMAT_NATIVE; i++)
    if (forms[i].presence == PETRA_PRESENT)
      forms[i] = (petra_tensor_form){PETRA_PRESENT,
                                     PETRA_TENSOR_QUANTISED,
                                     {0, (int32_t)petra_quantised_bytes(format, petra_stream_elements(shape)), 1, 1}};
}

/* --- kept inputs --- */

/* Returns the stored tensor of block `b` - 1 whose stream is also stream x of block `b`; NULL if there is none. */
static petra_tensor *stored_before(const petra_record *record, int b, const petra_streams *before,
                                   const petra_tensor *x) {
  for (int i = 0; i < 2 && b > 0; i++)
    if (before->tensor[i] == x && record->block[b - 1].input.tensor[i])
      return record->block[b - 1].input.tensor[i];
  return NULL;
}

petra_status petra_stage_keep_input(petra_stage *stage, petra_record *record, int b, const petra_streams *before,
                                    const petra_streams *in) {
  const petra_block *block = petra_stage_block(stage, b);
  const petra_format format = stage->options.formats.keep;
  petra_record_block *kept = &record->block[b];
  if (format == PETRA_FORMAT_NATIVE || block->reads_data) {
    kept->input = petra_streams_retain(in);
    petra_streams_charge(&kept->input, &stage->account, PETRA_MEMORY_INPUT_BUFFER);
    return PETRA_OK;
  }
  for (int i = 0; i < block->streams_in; i++) {
    const petra_draws draws = draws_of(stage, block, PLACE_INPUT + i, record->microbatch);
    kept->input.tensor[i] = petra_tensor_retain(stored_before(record, b, before, in->tensor[i]));
    if (!kept->input.tensor[i])
      PETRA_TRY(quantise(stage, in->tensor[i], format, &draws, PETRA_MEMORY_INPUT_BUFFER, &kept->input.tensor[i]));
  }
  return PETRA_OK;
}

petra_status petra_stage_kept_input(petra_stage *stage, const petra_record *record, int b, petra_streams *out) {
  const petra_block *block = petra_stage_block(stage, b);
  const petra_streams *kept = &record->block[b].input;
  *out = (petra_streams){{NULL, NULL}};
  if (kept->tensor[0]->kind != PETRA_TENSOR_QUANTISED) {
    *out = petra_streams_retain(kept);
    return PETRA_OK;
  }
  for (int i = 0; i < block->streams_in; i++)
    PETRA_TRY(dequantise(stage, kept->tensor[i], stage->options.formats.keep, &block->shape_in, PETRA_MEMORY_WORKSPACE,
                         &out->tensor[i]));
  return PETRA_OK;
}

/* --- kept graphs --- */

/* Returns true if a tensor of a block's graph is quantised: the inputs of convolutions, linear maps and norms, and the
 * activation that a block keeps beside its input. Statistics, masks, the tensors that a loss keeps and samples of the
 * data set are not quantised. */
static bool is_quantised(const petra_block *block, const petra_block_graph *graph, petra_tensor *const *place) {
  if (!*place || (*place)->kind == PETRA_TENSOR_MASK || (*place)->kind == PETRA_TENSOR_MATRIX)
    return false;
  for (int u = 0; u < PETRA_BLOCK_UNITS; u++)
    if (place == &graph->units[u].conv || (place == &graph->units[u].x && !block->reads_data))
      return true;
  return place == &graph->own[0] && !block->reads_data && !block->is_loss;
}

/* A tensor and its quantised form, which replaces it in every member of the record. */
typedef struct replacement {
  petra_tensor *from; /* a separate reference */
  petra_tensor *to;   /* borrowed from the first member */
} replacement;

static petra_status replace(petra_stage *stage, const petra_draws *draws, petra_tensor **place, replacement *list,
                            int *count) {
  int i = 0;
  while (i < *count && list[i].from != *place)
    i++;
  if (i < *count) {
    petra_tensor_release(place);
    *place = petra_tensor_retain(list[i].to);
    return PETRA_OK;
  }
  petra_tensor *quantised;
  PETRA_TRY(quantise(stage, *place, stage->options.formats.keep, draws, PETRA_MEMORY_GRAPH, &quantised));
  list[(*count)++] = (replacement){*place, quantised};
  *place = quantised;
  return PETRA_OK;
}

petra_status petra_stage_keep_graphs(petra_stage *stage, petra_record *record) {
  replacement *list;
  petra_status status = PETRA_OK;
  int count = 0;
  PETRA_TRY(petra_allocate(&list, (size_t)stage->blocks * PETRA_GRAPH_TENSORS, sizeof *list));
  for (int b = 0; b < stage->blocks; b++) {
    const petra_block *block = petra_stage_block(stage, b);
    petra_tensor **members[PETRA_GRAPH_TENSORS];
    petra_block_graph_tensors(&record->block[b].graph, members);
    for (int i = 0; i < PETRA_GRAPH_TENSORS; i++) {
      const petra_draws draws = draws_of(stage, block, PLACE_GRAPH + i, record->microbatch);
      if (!is_quantised(block, &record->block[b].graph, members[i]))
        continue;
      stage->graph_forms[b][i] = petra_tensor_form_of(*members[i]);
      PETRA_TRY_GOTO(status, replace(stage, &draws, members[i], list, &count), done);
    }
  }
done:
  for (int i = 0; i < count; i++)
    petra_tensor_release(&list[i].from);
  petra_free(list);
  return status;
}

petra_status petra_stage_kept_graph(petra_stage *stage, petra_record *record, int b) {
  petra_tensor **members[PETRA_GRAPH_TENSORS], *before[PETRA_GRAPH_TENSORS] = {NULL};
  petra_status status = PETRA_OK;
  petra_block_graph_tensors(&record->block[b].graph, members);
  for (int i = 0; i < PETRA_GRAPH_TENSORS && status == PETRA_OK; i++) {
    petra_tensor *whole = NULL;
    if (!*members[i] || (*members[i])->kind != PETRA_TENSOR_QUANTISED)
      continue;
    for (int k = 0; k < i && !whole; k++)
      if (before[k] == *members[i])
        whole = petra_tensor_retain(*members[k]);
    if (!whole) {
      const petra_tensor_form *form = &stage->graph_forms[b][i];
      const petra_stream_shape shape = {.kind = form->kind, .extent = {form->shape[1], form->shape[2], form->shape[3]}};
      status = dequantise(stage, *members[i], stage->options.formats.keep, &shape, PETRA_MEMORY_GRAPH, &whole);
    }
    before[i] = *members[i];
    *members[i] = whole;
  }
  for (int i = 0; i < PETRA_GRAPH_TENSORS; i++)
    petra_tensor_release(&before[i]);
  return status;
}
