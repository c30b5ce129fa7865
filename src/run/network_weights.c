/* The stages' parameters and statistics as the named tensors of a weights file. Those of stages that are elsewhere have no
 * tensor. */
#include "backend/ops.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/network.h"
#include "io/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct tensor_list {
  int count;
  petra_weight *weights;
  petra_tensor **tensors;
} tensor_list;

static petra_status add_tensor(tensor_list *list, const petra_block *block, const petra_tensor_spec *spec,
                               petra_tensor *tensor) {
  petra_weight *weight = &list->weights[list->count];
  snprintf(weight->name, sizeof weight->name, "%02d/%s", block->number, spec->name);
  weight->rank = spec->rank;
  for (int i = 0; i < 4; i++)
    weight->shape[i] = spec->shape[i];
  weight->elements = 1;
  for (int i = 0; i < spec->rank; i++)
    weight->elements *= spec->shape[i];
  PETRA_TRY(petra_allocate(&weight->values, (size_t)weight->elements, sizeof *weight->values));
  list->tensors[list->count++] = tensor;
  return PETRA_OK;
}

static petra_status add_block(tensor_list *list, const petra_network *network, petra_stage *stage, int b) {
  const petra_block *block = &network->plan->model.blocks[b];
  petra_tensor_spec spec;
  for (int i = 0; i < petra_block_parameter_count(block); i++) {
    petra_block_parameter(&network->plan->model, block, i, &spec);
    PETRA_TRY(add_tensor(list, block, &spec, stage ? petra_stage_tensor(stage, b, false, i) : NULL));
  }
  for (int i = 0; i < petra_block_statistic_count(block); i++) {
    petra_block_statistic(block, i, &spec);
    PETRA_TRY(add_tensor(list, block, &spec, stage ? petra_stage_tensor(stage, b, true, i) : NULL));
  }
  return PETRA_OK;
}

static void destroy_list(tensor_list *list) {
  for (int i = 0; i < list->count; i++)
    petra_free(list->weights[i].values);
  petra_free(list->weights);
  petra_free(list->tensors);
  petra_free(list);
}

static petra_status make_list(const petra_network *network, tensor_list **out) {
  tensor_list *list;
  petra_status status;
  size_t most = (size_t)network->plan->model.block_count * (PETRA_BLOCK_TENSORS + PETRA_BLOCK_STATISTICS);
  PETRA_TRY(petra_allocate(&list, 1, sizeof *list));
  PETRA_TRY_GOTO(status, petra_allocate(&list->weights, most, sizeof *list->weights), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&list->tensors, most, sizeof *list->tensors), fail);
  for (int j = 0; j < network->plan->partition.stages; j++)
    for (int b = network->plan->partition.first[j]; b < network->plan->partition.first[j + 1]; b++)
      PETRA_TRY_GOTO(status, add_block(list, network, network->stage[j], b), fail);
  *out = list;
  return PETRA_OK;
fail:
  destroy_list(list);
  return status;
}

/* A batch norm divides by the root of its running variance. */
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

/* What could not be read back is not written over what can. */
static petra_status check_finite(const tensor_list *list, const char *path) {
  for (int i = 0; i < list->count; i++)
    for (int64_t e = 0; e < list->weights[i].elements; e++)
      if (!isfinite(list->weights[i].values[e]))
        return petra_fail(PETRA_NOT_FINITE, "%s: not written: element %lld of %s is %g; the run has diverged", path,
                          (long long)e, list->weights[i].name, list->weights[i].values[e]);
  return PETRA_OK;
}

/* The values of the stages that are here. */
static petra_status download(const petra_network *network, tensor_list *list) {
  for (int i = 0; i < list->count; i++)
    if (list->tensors[i])
      PETRA_TRY(petra_op_download(network->backend, list->tensors[i], list->weights[i].values, PETRA_HOST_F64));
  return PETRA_OK;
}

static petra_status write_list(const petra_network *network, const tensor_list *list, const char *path) {
  const petra_config *config = network->plan->config;
  char text[128];
  PETRA_TRY(check_finite(list, path));
  snprintf(text, sizeof text, "%s-%d width %d, %s stem, %d classes",
           petra_config_choice_name("model.family", (int)config->model.family), network->plan->model.depth,
           network->plan->model.width, petra_config_choice_name("model.stem", (int)config->model.stem),
           network->plan->model.classes);
  const petra_weights_about about = {.model = text};
  const bool wide = network->backend->element_bytes[PETRA_TENSOR_FILTER] > sizeof(float);
  return petra_weights_write(path, &about, list->weights, list->count, wide);
}

petra_status petra_network_write_weights(const petra_network *network, const char *path) {
  tensor_list *list;
  PETRA_TRY(make_list(network, &list));
  petra_status status = download(network, list);
  if (status == PETRA_OK)
    status = write_list(network, list, path);
  destroy_list(list);
  return status;
}

typedef struct gathering {
  const petra_network *network;
  const petra_placement *placement;
  tensor_list *list;
} gathering;

/* One rank's values, in the order of the list. */
static petra_status take_values(void *context, int rank, const void *data, size_t size) {
  const gathering *all = context;
  const petra_plan *plan = all->network->plan;
  const char *at = data, *end = at + size;
  int i = 0;
  for (int j = 0; j < plan->stages; j++)
    for (int b = plan->partition.first[j]; b < plan->partition.first[j + 1]; b++) {
      const petra_block *block = &plan->model.blocks[b];
      const int next = i + petra_block_parameter_count(block) + petra_block_statistic_count(block);
      for (; i < next; i++) {
        const size_t bytes = (size_t)all->list->weights[i].elements * sizeof(double);
        if (all->placement->rank_of[j] != rank)
          continue;
        if (bytes > (size_t)(end - at))
          return petra_fail(PETRA_INTERNAL, "rank %d has sent %zu bytes of weights, too few for its stages", rank,
                            size);
        memcpy(all->list->weights[i].values, at, bytes);
        at += bytes;
      }
    }
  return PETRA_OK;
}

petra_status petra_network_gather_weights(const petra_network *network, petra_ranks *ranks,
                                          const petra_placement *placement, const char *path) {
  gathering all = {network, placement, NULL};
  char *own = NULL, *at;
  size_t bytes = 0;
  petra_status status;
  PETRA_TRY(make_list(network, &all.list));
  PETRA_TRY_GOTO(status, download(network, all.list), done);
  for (int i = 0; i < all.list->count; i++)
    bytes += all.list->tensors[i] ? (size_t)all.list->weights[i].elements * sizeof(double) : 0;
  PETRA_TRY_GOTO(status, petra_allocate_raw(&own, bytes, 1), done);
  at = own;
  for (int i = 0; i < all.list->count; i++)
    if (all.list->tensors[i]) {
      memcpy(at, all.list->weights[i].values, (size_t)all.list->weights[i].elements * sizeof(double));
      at += (size_t)all.list->weights[i].elements * sizeof(double);
    }
  PETRA_TRY_GOTO(status, petra_ranks_gather(ranks, own, bytes, take_values, &all), done);
  if (ranks->rank == 0)
    status = write_list(network, all.list, path);
done:
  petra_free(own);
  destroy_list(all.list);
  return status;
}

petra_status petra_network_read_weights(petra_network *network, const char *path) {
  tensor_list *list;
  petra_status status;
  PETRA_TRY(make_list(network, &list));
  PETRA_TRY_GOTO(status, petra_weights_read(path, list->weights, list->count), done);
  PETRA_TRY_GOTO(status, check_variances(list, path), done);
  for (int i = 0; i < list->count; i++)
    if (list->tensors[i])
      PETRA_TRY_GOTO(
          status, petra_op_upload(network->backend, list->tensors[i], list->weights[i].values, PETRA_HOST_F64), done);
done:
  destroy_list(list);
  return status;
}
