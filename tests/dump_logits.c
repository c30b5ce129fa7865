/* SPDX-License-Identifier: Apache-2.0 */
/* dump_logits CONFIG.yaml [--set KEY=VALUE]...: the first batch of the evaluation set and what the network of
 * model.weights, on images or of tokens, makes of it, as doubles on standard output: samples N, the three extents of one, its
 * labels L, classes C; then the samples, the labels (N, L) and the logits (N, L, C). For tests/cli/weights_torch.py. The last stage
 * has to be the head alone. */
#include "backend/backend.h"
#include "exec/network.h"

#include <stdio.h>
#include <stdlib.h>

static petra_status new_tensor(petra_backend *backend, petra_tensor_kind kind, int32_t n, int32_t rows, int32_t columns,
                               petra_tensor **out) {
  const petra_compute compute = {.backend = backend};
  return petra_compute_tensor(&compute, kind, (const int32_t[]){n, rows, columns, 1}, PETRA_MEMORY_WORKSPACE, out);
}

/* The samples through all stages but the head. */
static petra_status streams_of(const petra_network *network, const petra_batch *batch, petra_streams *out) {
  petra_streams in = {{NULL, NULL}};
  petra_status status;
  PETRA_TRY(petra_batch_upload(network->backend, batch, NULL, PETRA_MEMORY_WORKSPACE, &in.tensor[0]));
  for (int j = 0; j < network->plan->stages - 1; j++) {
    petra_snapshot *snapshot = NULL;
    petra_streams next = {{NULL, NULL}};
    PETRA_TRY_GOTO(status, petra_stage_snapshot(network->stage[j], &snapshot), done);
    status = petra_stage_evaluate(network->stage[j], snapshot, &in, NULL, &next, NULL);
    petra_snapshot_destroy(snapshot);
    petra_streams_release(&in);
    in = next;
    if (status != PETRA_OK)
      return status;
  }
  *out = in;
  return PETRA_OK;
done:
  petra_streams_release(&in);
  return status;
}

static void put(const double *values, size_t count) {
  if (fwrite(values, sizeof *values, count, stdout) != count)
    exit(1);
}

/* What the head's linear map reads: of images the means of the streams' channels. */
static petra_status pooled_features(petra_backend *backend, const petra_block *head, const petra_streams *streams,
                                    petra_tensor **out) {
  PETRA_TRY(new_tensor(backend, PETRA_TENSOR_MATRIX, streams->tensor[0]->shape[0], head->features, 1, out));
  for (int i = 0; i < head->streams_in; i++)
    PETRA_TRY(petra_op_average_pool_forward(backend, streams->tensor[i], *out, i * head->shape_in.channels));
  return PETRA_OK;
}

/* Of tokens the norm of the streams' mean; parameters of the head: scale, shift (not of an RMS norm), weight. */
static petra_status normalised_features(petra_backend *backend, petra_stage *last, int block, const petra_block *head,
                                        const petra_streams *streams, petra_tensor **out) {
  const int32_t *shape = streams->tensor[0]->shape;
  const bool rms = head->layers[0].rms;
  petra_tensor *x = NULL, *mean = NULL, *deviation = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, new_tensor(backend, PETRA_TENSOR_SEQUENCE, shape[0], shape[1], shape[2], &x), done);
  PETRA_TRY_GOTO(status, new_tensor(backend, PETRA_TENSOR_SEQUENCE, shape[0], shape[1], shape[2], out), done);
  if (!rms)
    PETRA_TRY_GOTO(status, new_tensor(backend, PETRA_TENSOR_SEQUENCE, shape[0], shape[1], 1, &mean), done);
  PETRA_TRY_GOTO(status, new_tensor(backend, PETRA_TENSOR_SEQUENCE, shape[0], shape[1], 1, &deviation), done);
  PETRA_TRY_GOTO(status, petra_op_fill(backend, x, 0), done);
  for (int i = 0; i < head->streams_in; i++)
    PETRA_TRY_GOTO(status, petra_op_axpy(backend, 1.0 / head->streams_in, streams->tensor[i], x), done);
  const petra_layer_norm_forward norm = {.x = x,
                                         .scale = petra_stage_tensor(last, block, false, 0),
                                         .shift = rms ? NULL : petra_stage_tensor(last, block, false, 1),
                                         .y = *out,
                                         .mean = mean,
                                         .deviation = deviation};
  status = petra_op_layer_norm_forward(backend, &norm);
done:
  petra_tensor_release(&deviation);
  petra_tensor_release(&mean);
  petra_tensor_release(&x);
  return status;
}

static petra_status dump(const petra_network *network, const petra_batch *batch) {
  const petra_model *model = &network->plan->model;
  const int block = model->block_count - 1;
  const petra_block *head = &model->blocks[block];
  const bool tokens = head->shape_in.kind == PETRA_TENSOR_SEQUENCE;
  const int weight = !tokens ? 0 : head->layers[0].rms ? 1 : 2; /* its number among the parameters */
  petra_stage *last = network->stage[network->plan->stages - 1];
  petra_backend *backend = network->backend;
  petra_streams streams = {{NULL, NULL}};
  petra_tensor *features = NULL, *logits = NULL;
  const int32_t *shape = batch->shape;
  const size_t rows = (size_t)batch->count * (size_t)head->labels, all = rows * (size_t)head->classes;
  const double header[] = {batch->count, shape[1], shape[2], shape[3], head->labels, head->classes};
  double *values = calloc(all, sizeof *values);
  petra_status status;
  PETRA_TRY_GOTO(status, streams_of(network, batch, &streams), done);
  PETRA_TRY_GOTO(status,
                 tokens ? normalised_features(backend, last, block, head, &streams, &features)
                        : pooled_features(backend, head, &streams, &features),
                 done);
  PETRA_TRY_GOTO(status,
                 tokens ? new_tensor(backend, PETRA_TENSOR_SEQUENCE, batch->count, head->labels, head->classes, &logits)
                        : new_tensor(backend, PETRA_TENSOR_MATRIX, batch->count, head->classes, 1, &logits),
                 done);
  const petra_linear_forward linear = {.x = features,
                                       .w = petra_stage_tensor(last, block, false, weight),
                                       .b = tokens ? NULL : petra_stage_tensor(last, block, false, 1),
                                       .y = logits};
  PETRA_TRY_GOTO(status, petra_op_linear_forward(backend, &linear), done);
  PETRA_TRY_GOTO(status, petra_op_download(backend, logits, values, PETRA_HOST_F64), done);
  put(header, sizeof header / sizeof *header);
  put(batch->values, (size_t)shape[0] * (size_t)shape[1] * (size_t)shape[2] * (size_t)shape[3]);
  for (size_t i = 0; i < rows; i++)
    put(&(double){batch->labels[i]}, 1);
  put(values, all);
done:
  petra_tensor_release(&logits);
  petra_tensor_release(&features);
  petra_streams_release(&streams);
  free(values);
  return status;
}

static petra_status dump_first_batch(const petra_config *config) {
  petra_plan plan = {0};
  petra_network network = {0};
  petra_dataset *set = NULL;
  petra_loader *loader = NULL;
  petra_batch *batch;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_plan_init(&plan, config), done);
  PETRA_TRY_GOTO(status, petra_dataset_open(config, PETRA_SPLIT_EVAL, &set), done);
  PETRA_TRY_GOTO(status, petra_network_open(&network, &plan, NULL, 0, NULL), done);
  PETRA_TRY_GOTO(status, petra_network_initialise(&network), done);
  petra_loader_options options = petra_network_loader(&network, 0, 1);
  options.shuffle = options.drop_last = options.bytes = false;
  options.augment = 0;
  options.parts = options.part = 0;
  PETRA_TRY_GOTO(status, petra_loader_create(set, &options, &loader), done);
  PETRA_TRY_GOTO(status, petra_loader_next(loader, &batch), done);
  status = dump(&network, batch);
  petra_loader_give_back(loader, batch);
done:
  petra_loader_destroy(loader);
  petra_dataset_destroy(set);
  petra_network_fini(&network);
  petra_plan_fini(&plan);
  return status;
}

enum { MAX_SETS = 32 };

int main(int argc, char **argv) {
  const char *sets[MAX_SETS];
  int set_count = 0;
  petra_config *config;
  if (argc < 2)
    return 2;
  if (argc > 2 + 2 * MAX_SETS) {
    fprintf(stderr, "%s: over %d settings\n", argv[0], MAX_SETS);
    return 2;
  }
  for (int i = 2; i + 1 < argc; i += 2)
    sets[set_count++] = argv[i + 1];
  petra_status status = petra_config_load(argv[1], sets, set_count, &config);
  if (status == PETRA_OK) {
    status = dump_first_batch(config);
    petra_config_destroy(config);
  }
  return petra_status_exit_code(status);
}
