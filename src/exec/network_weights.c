/* SPDX-License-Identifier: Apache-2.0 */
/* The stages' parameters and statistics as the named tensors of a weights file. Stages elsewhere have no tensors. */
#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/network.h"
#include "io/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct tensor_list {
  const petra_network *network;
  int count;
  /* Snapshots of the stages, used instead of their present tensors; NULL: none. */
  petra_snapshot *const *snapshots;
  bool has_values;  /* the weights have room for their values */
  const char *path; /* of the file to write */
  petra_weight *weights;
  petra_tensor **tensors; /* NULL: elsewhere */
  int *stages;            /* of each tensor, from 0 */
} tensor_list;

static void free_list(tensor_list *list) {
  for (int i = 0; i < list->count; i++)
    petra_free(list->weights[i].values);
  petra_free(list->weights);
  PETRA_FREE_ALL(list->tensors, list->stages);
}

/* The number in the name is the number of the block or, for an auxiliary head, the number of its stage, `j` + 1. */
static petra_status add_tensor(tensor_list *list, int j, const petra_block *block, const petra_tensor_spec *spec,
                               petra_tensor *tensor) {
  petra_weight *weight = &list->weights[list->count];
  snprintf(weight->name, sizeof weight->name, "%02d/%s", block->auxiliary ? j + 1 : block->number, spec->name);
  weight->auxiliary = block->auxiliary;
  weight->rank = spec->rank;
  for (int i = 0; i < 4; i++)
    weight->shape[i] = spec->shape[i];
  weight->elements = (int64_t)spec->shape[0] * spec->shape[1] * spec->shape[2] * spec->shape[3];
  if (list->has_values)
    PETRA_TRY(petra_allocate(&weight->values, (size_t)weight->elements, sizeof *weight->values));
  list->stages[list->count] = j;
  list->tensors[list->count++] = tensor;
  return PETRA_OK;
}

/* Returns NULL if the stage is elsewhere. */
static petra_tensor *tensor_of(const tensor_list *list, int j, int b, bool statistics, int index) {
  petra_stage *stage = list->network->stage[j];
  if (stage && list->snapshots)
    return petra_snapshot_tensor(stage, list->snapshots[j], b, statistics, index);
  return stage ? petra_stage_tensor(stage, b, statistics, index) : NULL;
}

static petra_status add_block(tensor_list *list, int j, int b) {
  const petra_model *model = &list->network->plan->model;
  const petra_block *block = &model->blocks[b];
  petra_tensor_spec spec;
  for (int i = 0; i < petra_block_parameter_count(block); i++) {
    petra_block_parameter(model, block, i, &spec);
    PETRA_TRY(add_tensor(list, j, block, &spec, tensor_of(list, j, b, false, i)));
  }
  for (int i = 0; i < petra_block_statistic_count(block); i++) {
    petra_block_statistic(block, i, &spec);
    PETRA_TRY(add_tensor(list, j, block, &spec, tensor_of(list, j, b, true, i)));
  }
  return PETRA_OK;
}

/* Fills a list whose members network, snapshots and has_values are set. */
static petra_status make_list(tensor_list *list) {
  const petra_plan *plan = list->network->plan;
  const size_t maximum =
      (size_t)(plan->model.block_count + plan->model.auxiliary_count) * (PETRA_BLOCK_TENSORS + PETRA_BLOCK_STATISTICS);
  PETRA_TRY(petra_allocate(&list->weights, maximum, sizeof *list->weights));
  PETRA_TRY(petra_allocate(&list->tensors, maximum, sizeof *list->tensors));
  PETRA_TRY(petra_allocate(&list->stages, maximum, sizeof *list->stages));
  for (int j = 0; j < plan->stages; j++)
    for (int i = 0; i < petra_plan_stage_blocks(plan, j); i++)
      PETRA_TRY(add_block(list, j, petra_plan_stage_block(plan, j, i)));
  return PETRA_OK;
}

/* Checks running variances, because a batch norm divides by their roots. */
static petra_status check_variances(const tensor_list *list, const char *path) {
  for (int i = 0; i < list->count; i++) {
    const petra_weight *weight = &list->weights[i];
    if (!strstr(weight->name, "running_var"))
      continue;
    for (int64_t e = 0; e < weight->elements; e++)
      if (weight->values[e] < 0)
        return petra_fail(PETRA_DATA, "%s: /parameters/%s: element %lld is %g; expected a variance of at least 0", path,
                          weight->name, (long long)e, weight->values[e]);
  }
  return PETRA_OK;
}

/* Checks the values, so that a file that could not be read back never replaces a file that can. */
static petra_status check_finite(const petra_weight *weight, const double *values, const char *path) {
  for (int64_t e = 0; e < weight->elements; e++)
    if (!isfinite(values[e]))
      return petra_fail(PETRA_NOT_FINITE, "%s: not written: element %lld of %s is %g; the run has diverged", path,
                        (long long)e, weight->name, values[e]);
  return PETRA_OK;
}

/* The source of a file's values: downloads each tensor when it is written. */
static petra_status get_values(void *context, int index, double *values) {
  const tensor_list *list = context;
  PETRA_TRY(petra_op_download(list->network->backend, list->tensors[index], values, PETRA_HOST_F64));
  return check_finite(&list->weights[index], values, list->path);
}

/* Takes the values of one rank, which are in the order of the list. */
static petra_status take_values(void *context, int rank, const void *data, size_t size) {
  const tensor_list *list = context;
  const char *at = data, *end = at + size;
  for (int i = 0; i < list->count; i++) {
    const petra_weight *weight = &list->weights[i];
    const size_t bytes = (size_t)weight->elements * sizeof *weight->values;
    if (list->network->placement->rank_of[list->stages[i]] != rank)
      continue;
    if (bytes > (size_t)(end - at))
      return petra_fail(PETRA_INTERNAL, "rank %d has sent %zu bytes of weights, too few for its stages", rank, size);
    memcpy(weight->values, at, bytes);
    at += bytes;
  }
  return PETRA_OK;
}

/* Writes the list. If it does not contain the values, they are read from the tensors, one tensor at a time. */
static petra_status write_list(tensor_list *list, const petra_weights_moment *moment) {
  const petra_network *network = list->network;
  char text[PETRA_MODEL_LABEL];
  const petra_weights_source source = {get_values, list};
  for (int i = 0; i < list->count; i++)
    if (list->weights[i].values)
      PETRA_TRY(check_finite(&list->weights[i], list->weights[i].values, list->path));
  petra_model_label(&network->plan->model, network->plan->config, text, sizeof text);
  const bool wide = network->backend->element_bytes[PETRA_TENSOR_FILTER] > sizeof(float);
  return petra_weights_write(list->path, text, list->weights, list->count, wide, moment, &source);
}

petra_status petra_network_copy_weights(const petra_network *network, petra_snapshot *const *snapshots, double **out,
                                        int64_t *count) {
  PETRA_FINISHED(free_list) tensor_list list = {.network = network, .snapshots = snapshots};
  PETRA_FREED double *values = NULL;
  int64_t all = 0, next = 0;
  PETRA_TRY(make_list(&list));
  for (int i = 0; i < list.count; i++)
    all += list.tensors[i] ? list.weights[i].elements : 0;
  PETRA_TRY(petra_allocate_raw(&values, (size_t)all, sizeof *values));
  for (int i = 0; i < list.count; i++)
    if (list.tensors[i]) {
      PETRA_TRY(petra_op_download(network->backend, list.tensors[i], values + next, PETRA_HOST_F64));
      next += list.weights[i].elements;
    }
  *out = values;
  *count = all;
  values = NULL;
  return PETRA_OK;
}

petra_status petra_network_write_copies(const petra_network *network, const double *values, int64_t count,
                                        const petra_weights_moment *moment, const char *path) {
  petra_ranks *ranks = network->placement->ranks;
  PETRA_FINISHED(free_list) tensor_list list = {.network = network, .has_values = ranks->rank == 0, .path = path};
  PETRA_TRY(make_list(&list));
  PETRA_TRY(petra_ranks_gather(ranks, values, (size_t)count * sizeof *values, take_values, &list));
  return ranks->rank == 0 ? write_list(&list, moment) : PETRA_OK;
}

petra_status petra_network_write_weights(const petra_network *network, petra_snapshot *const *snapshots,
                                         const petra_weights_moment *moment, const char *path) {
  PETRA_FINISHED(free_list) tensor_list list = {.network = network, .snapshots = snapshots, .path = path};
  PETRA_FREED double *own = NULL;
  int64_t count;
  if (network->placement && network->placement->ranks->progress) {
    PETRA_TRY(petra_network_copy_weights(network, snapshots, &own, &count));
    return petra_network_write_copies(network, own, count, moment, path);
  }
  PETRA_TRY(make_list(&list));
  return write_list(&list, moment);
}

petra_status petra_network_weights_bytes(const petra_network *network, int64_t *out) {
  enum { FILE_BYTES = 16384, TENSOR_BYTES = 1024 }; /* of HDF5: measured 10,000, and 900 to 1,000 per tensor */
  PETRA_FINISHED(free_list) tensor_list list = {.network = network};
  PETRA_TRY(make_list(&list));
  *out = FILE_BYTES + (int64_t)list.count * TENSOR_BYTES;
  for (int i = 0; i < list.count; i++)
    *out += list.weights[i].elements * network->backend->element_bytes[PETRA_TENSOR_FILTER];
  return PETRA_OK;
}

/* Skips the tensors of the head, which keeps its initial weights with model.new_head. Tensors are in the order of
 * blocks, so the tensors of the head are the last. */
static void pass_by_head(tensor_list *list) {
  const petra_network *network = list->network;
  const petra_block *head = &network->plan->model.blocks[network->plan->model.block_count - 1];
  const int tensors = petra_block_parameter_count(head) + petra_block_statistic_count(head);
  for (int i = list->count - tensors; i < list->count; i++)
    list->weights[i].skipped = true;
}

/* Returns how much of a network's label must be equal: with model.new_head, all of it except the classes, which come
 * last. */
static size_t label_length(const petra_config *config, const char *label) {
  const char *classes = strrchr(label, ',');
  return config->model.new_head && classes ? (size_t)(classes - label) : strlen(label);
}

/* Checks that the weights belong to this network, if the file names its network: different networks may have tensors
 * with the same names and shapes (GPT and RevGPT, or networks with different heads). */
static petra_status check_model(const petra_network *network, const char *path) {
  const petra_config *config = network->plan->config;
  PETRA_FREED char *found = NULL;
  char own[PETRA_MODEL_LABEL];
  petra_model_label(&network->plan->model, config, own, sizeof own);
  PETRA_TRY(petra_weights_read_model(path, &found));
  const size_t length = label_length(config, own);
  const bool same = !found || (label_length(config, found) == length && memcmp(found, own, length) == 0);
  return same ? PETRA_OK
              : petra_config_fail(config, "model.weights", "%s: weights of %s; expected those of %s", path, found, own);
}

petra_status petra_network_read_weights(petra_network *network, const char *path) {
  PETRA_FINISHED(free_list) tensor_list list = {.network = network, .has_values = true};
  PETRA_TRY(make_list(&list));
  if (network->plan->config->model.new_head)
    pass_by_head(&list);
  for (int i = 0; i < list.count; i++) /* auxiliary heads keep their initial weights */
    list.weights[i].skipped = list.weights[i].skipped || list.weights[i].auxiliary;
  PETRA_TRY(check_model(network, path));
  PETRA_TRY(petra_weights_read(path, list.weights, list.count));
  PETRA_TRY(check_variances(&list, path));
  for (int i = 0; i < list.count; i++)
    if (list.tensors[i] && !list.weights[i].skipped)
      PETRA_TRY(petra_op_upload(network->backend, list.tensors[i], list.weights[i].values, PETRA_HOST_F64));
  return PETRA_OK;
}
