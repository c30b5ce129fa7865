/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of blocks: that each is complete, that its facts agree with what it does, and inversion. */
#include "backend/backend.h"
#include "base/mem.h"
#include "base/rng.h"
#include "networks.h"
#include "nn/blocks.h"
#include "nn/optim.h"
#include "nn/block.h"

#include <math.h>

static petra_tensor *random_tensor(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                   petra_rng *rng) {
  petra_tensor *tensor = NULL;
  double *values;
  ck_assert_int_eq(petra_tensor_create(backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &tensor), PETRA_OK);
  ck_assert_int_eq(petra_allocate(&values, (size_t)tensor->elements, sizeof *values), PETRA_OK);
  for (int64_t i = 0; i < tensor->elements; i++)
    values[i] = petra_rng_normal(rng);
  ck_assert_int_eq(petra_op_upload(backend, tensor, values, PETRA_HOST_F64), PETRA_OK);
  petra_free(values);
  return tensor;
}

/* The largest difference, and the largest value of `a`. */
static double distance(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *largest) {
  double *x, *y, maximum = 0;
  ck_assert_int_eq(petra_allocate(&x, (size_t)a->elements, sizeof *x), PETRA_OK);
  ck_assert_int_eq(petra_allocate(&y, (size_t)a->elements, sizeof *y), PETRA_OK);
  ck_assert_int_eq(petra_op_download(backend, a, x, PETRA_HOST_F64), PETRA_OK);
  ck_assert_int_eq(petra_op_download(backend, b, y, PETRA_HOST_F64), PETRA_OK);
  for (int64_t i = 0; i < a->elements; i++) {
    maximum = fabs(x[i] - y[i]) > maximum ? fabs(x[i] - y[i]) : maximum;
    *largest = fabs(x[i]) > *largest ? fabs(x[i]) : *largest;
  }
  petra_free(x);
  petra_free(y);
  return maximum;
}

/* y2 holds the pixels of x1 as channels, and y1 differs from those of x2: F is not nothing. */
static void check_shuffled(const petra_compute *compute, const petra_block *block, const petra_streams *in,
                           const petra_streams *out) {
  petra_tensor *deep = NULL;
  double unused = 0;
  ck_assert_str_eq(block->ops->name, "shuffle");
  ck_assert_int_eq(petra_tensor_create(compute->backend, PETRA_TENSOR_ACTIVATION, out->tensor[0]->shape, NULL,
                                       PETRA_MEMORY_WORKSPACE, &deep),
                   PETRA_OK);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(petra_op_space_to_depth(compute->backend, in->tensor[i], deep), PETRA_OK);
    double apart = distance(compute->backend, deep, out->tensor[1 - i], &unused);
    ck_assert(i == 0 ? apart == 0 : apart > 0.1);
  }
  petra_tensor_release(&deep);
}

/* x1 comes back bit for bit, x2 up to `epsilon`, the unit of rounding of the element type. */
static void invert_block(const petra_compute *compute, const petra_model *model, const petra_block *block,
                         double epsilon, petra_rng *rng) {
  const petra_tensor_kind kind = block->shape_in.kind;
  int32_t shape[4];
  petra_backend *backend = compute->backend;
  petra_tensor_set parameters = {.count = petra_block_parameter_count(block)};
  for (int i = 0; i < parameters.count; i++) {
    petra_tensor_spec spec;
    petra_block_parameter(model, block, i, &spec);
    parameters.tensor[i] = random_tensor(backend, spec.kind, spec.shape, rng);
  }
  petra_stream_tensor_shape(&block->shape_in, 2, shape);
  petra_streams in = {{random_tensor(backend, kind, shape, rng), random_tensor(backend, kind, shape, rng)}};
  petra_streams out = {{NULL, NULL}}, back = {{NULL, NULL}};
  petra_block_graph graph = {0};
  double largest = 0, unused = 0;
  ck_assert_int_eq(petra_block_forward(compute, block, parameters.tensor, &in, NULL, NULL, &out), PETRA_OK);
  ck_assert_int_eq(petra_block_invert(compute, block, parameters.tensor, &out, &graph, &back), PETRA_OK);
  distance(backend, out.tensor[0], out.tensor[0], &largest);
  ck_assert_double_eq(distance(backend, in.tensor[0], back.tensor[0], &unused), 0); /* y2 is x1 itself */
  /* F is computed again bit for bit; x2 + F and its difference round once each: by half a unit of |y1| or
   * |x2|. */
  unused = 0;
  double apart = distance(backend, in.tensor[1], back.tensor[1], &unused);
  /* With the leapfrog coupling 2 x1 - x2 rounds as well, and may be larger than either. */
  const double roundings = block->coupling == PETRA_COUPLING_LEAPFROG ? 4 : 1.01;
  ck_assert_double_le(apart, roundings * epsilon * (largest > unused ? largest : unused));
  if (block->ops == &petra_revblock_ops) {
    double moved = distance(backend, in.tensor[1], out.tensor[0], &unused);
    ck_assert_double_gt(moved, 0.1); /* F is not nothing */
  } else {
    check_shuffled(compute, block, &in, &out);
  }
  petra_block_graph_release(&graph);
  petra_streams_release(&in);
  petra_streams_release(&out);
  petra_streams_release(&back);
  petra_tensor_set_release(&parameters);
}

START_TEST(reversible_blocks_invert) {
  const int expected[] = {5, 12, 12, 7, 4, 4, 4, 4, 4};
  petra_rng rng;
  petra_rng_init(&rng, 11, PETRA_RNG_TEST, 0, 0);
  for (int d = 0; d < HARNESS_COUNT(expected); d++) {
    petra_backend *backend;
    int count = 0;
    ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 2, true, &backend), PETRA_OK);
    const petra_compute compute = {.backend = backend};
    petra_model model = d == 0   ? make_model("revnet", 18, 3, "cifar", 10, 16)
                        : d == 1 ? make_model("revnet", 50, 3, "cifar", 10, 16)
                        : d == 2 ? make_variant(50, 3, "cifar", 10, 16)
                        : d == 3 ? make_constant(7, 3, "cifar", 10, 5)
                        : d == 4 ? make_transformer("revgpt")
                        : d == 5 ? make_transformer("revvit")
                        : d == 6 ? make_transformer("revllama")
                                 : make_coupled(d == 7 ? "revvit" : "revllama", "leapfrog");
    for (int b = 0; b < model.block_count; b++)
      if (model.blocks[b].reversible) {
        invert_block(&compute, &model, &model.blocks[b], 0x1p-52, &rng);
        count++;
      }
    ck_assert_int_eq(count, expected[d]);
    petra_model_fini(&model);
    petra_backend_destroy(backend); /* checks that nothing is held */
  }
}
END_TEST

START_TEST(invertible_blocks_invert) {
  const int depths[] = {18, 34, 18, 34};
  petra_rng rng;
  petra_rng_init(&rng, 12, PETRA_RNG_TEST, 0, 0);
  for (int d = 0; d < 4; d++) {
    petra_backend *backend;
    bool single = d >= 2;
    ck_assert_int_eq(petra_backend_create(single ? PETRA_BACKEND_CPU : PETRA_BACKEND_REF,
                                          single ? PETRA_PRECISION_FP32 : PETRA_PRECISION_FP64, 2, true, &backend),
                     PETRA_OK);
    const petra_compute compute = {.backend = backend};
    petra_model model = make_invertible(depths[d], 3, "cifar", 10, 16);
    for (int b = 1; b < model.block_count - 1; b++)
      invert_block(&compute, &model, &model.blocks[b], single ? 0x1p-23 : 0x1p-52, &rng);
    petra_model_fini(&model);
    petra_backend_destroy(backend); /* checks that nothing is held */
  }
}
END_TEST

/* Every kind of block occurs in one of these. */
static petra_model network(int i) {
  switch (i) {
  case 0:
    return make_model("revnet", 18, 4, "cifar", 10, 16);
  case 1:
    return make_model("revnet", 50, 2, "imagenet", 10, 32);
  case 2:
    return make_model("resnet", 18, 4, "imagenet", 10, 64);
  case 3:
    return make_model("resnet", 50, 2, "cifar", 10, 16);
  case 4:
    return make_invertible(18, 2, "cifar", 10, 16);
  case 5:
    return make_transformer("gpt");
  case 6:
    return make_transformer("revgpt");
  case 7:
    return make_transformer("vit");
  case 8:
    return make_variant(50, 2, "cifar", 10, 16);
  case 9:
    return make_constant(2, 3, "imagenet", 10, 16);
  case 10:
    return make_transformer("llama");
  case 11:
    return make_coupled("revllama", "leapfrog");
  default:
    return make_transformer("revvit");
  }
}
enum { NETWORKS = 13, SAMPLES = 3 };

#define LISTED(kind) &petra_##kind##_ops,
static const petra_block_ops *const kinds[] = {PETRA_BLOCK_LIST(LISTED)};
#undef LISTED

START_TEST(every_kind_has_every_entry) {
  bool seen[HARNESS_COUNT(kinds)] = {false};
  for (int k = 0; k < HARNESS_COUNT(kinds); k++) {
    const petra_block_ops *ops = kinds[k];
    ck_assert(ops->name && ops->forward && ops->backward && ops->kernels);
    ck_assert_int_eq(ops->own_parameters > 0, ops->own_parameter != NULL);
    for (int other = 0; other < k; other++)
      ck_assert_str_ne(kinds[other]->name, ops->name);
  }
  for (int i = 0; i < NETWORKS; i++) {
    petra_model model = network(i);
    for (int b = 0; b < model.block_count; b++) {
      const petra_block *block = &model.blocks[b];
      ck_assert_int_eq(block->reversible, block->ops->invert != NULL);
      ck_assert_int_eq(block->reads_data, b == 0);
      ck_assert_int_eq(block->is_loss, b == model.block_count - 1);
      ck_assert_int_eq(block->streams_out == 0, block->is_loss);
      for (int k = 0; k < HARNESS_COUNT(kinds); k++)
        seen[k] = seen[k] || kinds[k] == block->ops;
    }
    petra_model_fini(&model);
  }
  for (int k = 0; k < HARNESS_COUNT(kinds); k++)
    ck_assert_msg(seen[k], "no network has a block of kind %s", kinds[k]->name);
}
END_TEST

static int64_t spec_elements(const petra_tensor_spec *spec) {
  return (int64_t)spec->shape[0] * spec->shape[1] * spec->shape[2] * spec->shape[3];
}

/* What the specs say of the tensors that a block creates. */
static void check_specs(const petra_compute *compute, const petra_model *model, const petra_block *block) {
  for (int s = 0; s < 2; s++) {
    petra_tensor_set set;
    int64_t elements = 0;
    ck_assert_int_eq(petra_tensor_set_create(compute, model, block, s, PETRA_MEMORY_WORKSPACE, &set), PETRA_OK);
    ck_assert_int_eq(set.count, s ? petra_block_statistic_count(block) : petra_block_parameter_count(block));
    ck_assert_int_le(set.count, s ? PETRA_BLOCK_STATISTICS : PETRA_BLOCK_TENSORS);
    for (int i = 0; i < set.count; i++) {
      petra_tensor_spec spec;
      if (s)
        petra_block_statistic(block, i, &spec);
      else
        petra_block_parameter(model, block, i, &spec);
      ck_assert_int_eq(set.tensor[i]->kind, spec.kind);
      ck_assert_int_eq(set.tensor[i]->elements, spec_elements(&spec));
      ck_assert_int_eq(memcmp(set.tensor[i]->shape, spec.shape, sizeof spec.shape), 0);
      ck_assert_int_eq(s, spec.role == PETRA_ROLE_MEAN || spec.role == PETRA_ROLE_VARIANCE);
      const bool matrix = spec.role == PETRA_ROLE_WEIGHT || spec.role == PETRA_ROLE_EMBEDDING;
      const int layer = spec.unit - block->unit_count;
      ck_assert_int_eq(matrix, spec.rank > 1);
      ck_assert_int_eq(spec.decay, matrix);
      ck_assert_int_eq(spec.fan_in > 0 || spec.deviation > 0,
                       matrix || (spec.role == PETRA_ROLE_BIAS && block->ops == &petra_head_ops));
      ck_assert_int_eq(spec.deferred, spec.kind == PETRA_TENSOR_FILTER ||
                                          (layer >= 0 && layer < block->layer_count && block->layers[layer].deferred &&
                                           (spec.role == PETRA_ROLE_WEIGHT || spec.role == PETRA_ROLE_BIAS)));
      ck_assert(spec.unit >= 0 && layer <= block->layer_count);
      ck_assert_int_eq(strstr(spec.name, "/shift") != NULL, spec.role == PETRA_ROLE_SHIFT);
      ck_assert_int_eq(strstr(spec.name, "/scale") != NULL, spec.role == PETRA_ROLE_SCALE);
      elements += spec_elements(&spec);
    }
    if (!s)
      ck_assert_int_eq(elements, petra_block_parameters(model, block));
    petra_tensor_set_release(&set);
  }
}

/* Multiply-adds of a weight: once for every pixel or row that it makes. */
static int64_t flops_of_weights(const petra_model *model, const petra_block *block) {
  int64_t sum = 0;
  for (int i = 0; i < petra_block_parameter_count(block); i++) {
    petra_tensor_spec spec;
    petra_block_parameter(model, block, i, &spec);
    if (spec.role != PETRA_ROLE_WEIGHT)
      continue;
    const petra_unit *unit = &block->units[spec.unit];
    sum += 2 * spec_elements(&spec) *
           (block->unit_count ? (int64_t)unit->height_out * unit->width_out : block->layers[spec.unit].rows);
  }
  return sum;
}

/* FLOPs of the attention of a sample: two products of a position with each that it reads, of d features in each head, and
 * `softmax` of each softmax's entries. Backward there are five products. */
static int64_t flops_of_attention(const petra_block *block, int products, int softmax) {
  int64_t sum = 0;
  for (int q = 0; block->heads > 0 && q < block->shape_in.positions; q++)
    for (int k = 0; k < block->shape_in.positions; k++)
      if (!block->causal || k <= q)
        sum += 2 * products * block->shape_in.features + softmax * block->heads;
  return sum;
}

static void check_kernels(const petra_model *model, const petra_block *block) {
  petra_kernel_list list, twice;
  double flops[4] = {0}, update_bytes = 0;
  const petra_optim sgd = {0};
  petra_block_kernels(model, block, &sgd, SAMPLES, 4, &list);
  petra_block_kernels(model, block, &sgd, SAMPLES, 8, &twice);
  ck_assert_int_eq(list.count, twice.count);
  for (int i = 0; i < list.count; i++) {
    const petra_kernel *kernel = &list.kernel[i];
    ck_assert(kernel->bytes > 0);
    /* An embedding without positions only copies. */
    ck_assert_int_eq(kernel->flops > 0,
                     kernel->part != PETRA_KERNEL_FORWARD || block->ops != &petra_token_embedding_ops);
    ck_assert_double_eq(twice.kernel[i].bytes, 2 * kernel->bytes);
    ck_assert_int_eq(kernel->rebuilt, kernel->part == PETRA_KERNEL_FORWARD && !block->is_loss);
    if (kernel->matrix)
      flops[kernel->part] += kernel->flops;
    if (kernel->part == PETRA_KERNEL_UPDATE)
      update_bytes += kernel->bytes;
  }
  const double forward = (double)(SAMPLES * flops_of_weights(model, block));
  ck_assert_int_eq(petra_block_flops(block), flops_of_weights(model, block) + flops_of_attention(block, 2, 0));
  ck_assert_int_eq(petra_block_work(block, NULL), flops_of_weights(model, block) + flops_of_attention(block, 2, 5));
  ck_assert_double_eq(flops[PETRA_KERNEL_FORWARD], forward + (double)(SAMPLES * flops_of_attention(block, 2, 5)));
  ck_assert_double_eq(flops[PETRA_KERNEL_BACKWARD],
                      block->reads_data ? 0 : forward + (double)(SAMPLES * flops_of_attention(block, 5, 5)));
  ck_assert_double_eq(flops[PETRA_KERNEL_WEIGHT_GRADIENT], forward);
  ck_assert_double_eq(update_bytes, 5.0 * 4 * (double)petra_block_parameters(model, block));
}

static void check_same(petra_backend *backend, const petra_tensor *a, const petra_tensor *b) {
  double *x, *y;
  ck_assert_int_eq(a->elements, b->elements);
  ck_assert_int_eq(petra_allocate(&x, (size_t)a->elements, sizeof *x), PETRA_OK);
  ck_assert_int_eq(petra_allocate(&y, (size_t)a->elements, sizeof *y), PETRA_OK);
  ck_assert_int_eq(petra_op_download(backend, a, x, PETRA_HOST_F64), PETRA_OK);
  ck_assert_int_eq(petra_op_download(backend, b, y, PETRA_HOST_F64), PETRA_OK);
  ck_assert_mem_eq(x, y, (size_t)a->elements * sizeof *x);
  petra_free(x);
  petra_free(y);
}

/* A forward for the graph alone leaves the graph of one with an output. */
static void check_graph_alone(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                              const petra_streams *in, const petra_target *target, petra_block_graph *graph) {
  petra_block_graph alone = {.defer = true};
  petra_tensor **places[PETRA_GRAPH_TENSORS], **others[PETRA_GRAPH_TENSORS];
  ck_assert_int_eq(petra_block_forward(compute, block, parameters, in, target, &alone, NULL), PETRA_OK);
  petra_block_graph_tensors(graph, places);
  petra_block_graph_tensors(&alone, others);
  for (int i = 0; i < PETRA_GRAPH_TENSORS; i++) {
    ck_assert_msg((*places[i] == NULL) == (*others[i] == NULL), "%s: tensor %d of the graph", block->name, i);
    if (*places[i] && (*places[i])->kind != PETRA_TENSOR_MASK)
      check_same(compute->backend, *places[i], *others[i]);
  }
  petra_block_graph_release(&alone);
}

/* A stream, or tokens of the vocabulary. */
static petra_tensor *random_input(petra_backend *backend, const petra_model *model, const petra_block *block,
                                  const int32_t shape[4], petra_rng *rng) {
  petra_tensor *tensor = random_tensor(backend, block->shape_in.kind, shape, rng);
  if (block->ops != &petra_embedding_ops && block->ops != &petra_token_embedding_ops)
    return tensor;
  double tokens[SAMPLES * TRANSFORMER_CONTEXT];
  for (int i = 0; i < SAMPLES * TRANSFORMER_CONTEXT; i++)
    tokens[i] = petra_rng_below(rng, (uint32_t)model->classes);
  ck_assert_int_eq(petra_op_upload(backend, tensor, tokens, PETRA_HOST_F64), PETRA_OK);
  return tensor;
}

/* Forward, backward and W of a block: shapes that come out are those that it states, gradients are of its parameters,
 * W's are the deferred ones, and what reads the data set gives no gradient of it. */
static void check_passes(const petra_compute *compute, const petra_model *model, const petra_block *block,
                         petra_rng *rng) {
  static const int32_t labels[SAMPLES * TRANSFORMER_CONTEXT] = {3, 0, 9, 1, 1, 4, 8};
  petra_backend *backend = compute->backend;
  petra_tensor_set parameters, gradients, statistics;
  petra_streams in = {{NULL, NULL}}, out, dout = {{NULL, NULL}}, din;
  petra_block_graph graph = {.defer = true};
  petra_loss loss;
  const petra_target target = {labels, &loss};
  int32_t shape[4];
  ck_assert_int_eq(petra_tensor_set_create(compute, model, block, false, PETRA_MEMORY_WORKSPACE, &gradients), PETRA_OK);
  ck_assert_int_eq(petra_tensor_set_create(compute, model, block, true, PETRA_MEMORY_WORKSPACE, &statistics), PETRA_OK);
  parameters.count = gradients.count;
  for (int i = 0; i < parameters.count; i++)
    parameters.tensor[i] = random_tensor(backend, gradients.tensor[i]->kind, gradients.tensor[i]->shape, rng);
  petra_stream_tensor_shape(&block->shape_in, SAMPLES, shape);
  for (int i = 0; i < block->streams_in; i++)
    in.tensor[i] = random_input(backend, model, block, shape, rng);
  ck_assert_int_eq(petra_block_forward(compute, block, parameters.tensor, &in, &target, &graph, &out), PETRA_OK);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(out.tensor[i] != NULL, i < block->streams_out);
    if (!out.tensor[i])
      continue;
    ck_assert_int_eq(out.tensor[i]->elements, SAMPLES * petra_block_output_elements(block) / block->streams_out);
    dout.tensor[i] = random_tensor(backend, block->shape_out.kind, out.tensor[i]->shape, rng);
  }
  if (block->is_loss)
    ck_assert_int_eq(loss.images, SAMPLES * petra_model_labels(model));
  check_graph_alone(compute, block, parameters.tensor, &in, &target, &graph);
  ck_assert_int_eq(petra_block_update_statistics(compute, block, &graph, statistics.tensor), PETRA_OK);
  for (int pass = 0; pass < 2; pass++) {
    if (pass == 0)
      ck_assert_int_eq(petra_block_backward(compute, block, parameters.tensor, &graph, &dout, gradients.tensor, &din),
                       PETRA_OK);
    else
      ck_assert_int_eq(petra_block_weight_gradients(compute, block, &graph, gradients.tensor), PETRA_OK);
    for (int i = 0; i < gradients.count; i++) { /* they were zeros */
      petra_tensor_spec spec;
      double square;
      petra_block_parameter(model, block, i, &spec);
      ck_assert_int_eq(petra_op_dot(backend, gradients.tensor[i], gradients.tensor[i], &square), PETRA_OK);
      ck_assert_msg((square > 0) == (pass == 1 || !spec.deferred), "%s, %s: %g", block->name, spec.name, square);
    }
    petra_block_graph_keep_deferred(&graph);
  }
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(din.tensor[i] != NULL, !block->reads_data && i < block->streams_in);
  petra_block_graph_release(&graph);
  petra_streams_release(&in);
  petra_streams_release(&out);
  petra_streams_release(&dout);
  petra_streams_release(&din);
  petra_tensor_set_release(&parameters);
  petra_tensor_set_release(&gradients);
  petra_tensor_set_release(&statistics);
}

START_TEST(facts_agree_with_what_is_done) {
  petra_rng rng;
  petra_rng_init(&rng, 13, PETRA_RNG_TEST, 0, 0);
  for (int i = 0; i < NETWORKS; i++) {
    petra_backend *backend;
    ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 2, true, &backend), PETRA_OK);
    const petra_compute compute = {.backend = backend};
    petra_model model = network(i);
    for (int b = 0; b < model.block_count; b++) {
      check_specs(&compute, &model, &model.blocks[b]);
      check_kernels(&model, &model.blocks[b]);
      check_passes(&compute, &model, &model.blocks[b], &rng);
    }
    petra_model_fini(&model);
    petra_backend_destroy(backend); /* checks that nothing is held */
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {every_kind_has_every_entry, facts_agree_with_what_is_done, reversible_blocks_invert,
                                invertible_blocks_invert};
  return harness_run("blocks", tests, HARNESS_COUNT(tests));
}
