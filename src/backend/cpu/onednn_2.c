/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/onednn_version.h"

#include <stdlib.h>

dnnl_status_t onednn_describe(int count, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag,
                              onednn_description *out) {
  dnnl_memory_desc_t *made = malloc(sizeof *made); /* the caller logs the failure */
  if (!made)
    return dnnl_out_of_memory;
  *out = made;
  return dnnl_memory_desc_init_by_tag(made, count, dims, type, tag);
}

void onednn_forget(onednn_description description) {
  free((void *)(uintptr_t)description);
}

static dnnl_status_t describe_convolution(const onednn_made_of *of, dnnl_convolution_desc_t *out) {
  const dnnl_alg_kind_t direct = dnnl_convolution_direct;
  const dnnl_dims_t strides = {of->stride, of->stride}, pads = {of->pad, of->pad};
  switch (of->pass) {
  case CPU_FORWARD:
    return dnnl_convolution_forward_desc_init(out, dnnl_forward_training, direct, of->x, of->w, NULL, of->y, strides,
                                              pads, pads);
  case CPU_BACKWARD_DATA:
    return dnnl_convolution_backward_data_desc_init(out, direct, of->x, of->w, of->y, strides, pads, pads);
  case CPU_BACKWARD_WEIGHTS:
    break;
  }
  return dnnl_convolution_backward_weights_desc_init(out, direct, of->x, of->w, NULL, of->y, strides, pads, pads);
}

static dnnl_status_t describe_linear(const onednn_made_of *of, dnnl_inner_product_desc_t *out) {
  switch (of->pass) {
  case CPU_FORWARD:
    return dnnl_inner_product_forward_desc_init(out, dnnl_forward_training, of->x, of->w, of->b, of->y);
  case CPU_BACKWARD_DATA:
    return dnnl_inner_product_backward_data_desc_init(out, of->x, of->w, of->y);
  case CPU_BACKWARD_WEIGHTS:
    break;
  }
  return dnnl_inner_product_backward_weights_desc_init(out, of->x, of->w, NULL, of->y);
}

dnnl_status_t onednn_describe_primitive(dnnl_engine_t engine, dnnl_primitive_attr_t attributes,
                                        const onednn_made_of *of, dnnl_primitive_desc_t *out) {
  dnnl_convolution_desc_t convolution;
  dnnl_inner_product_desc_t linear;
  TRY(of->linear ? describe_linear(of, &linear) : describe_convolution(of, &convolution));
  return dnnl_primitive_desc_create(out, of->linear ? (const void *)&linear : &convolution, attributes, engine,
                                    of->hint);
}

dnnl_status_t onednn_append_sum(dnnl_post_ops_t operations) {
  return dnnl_post_ops_append_sum(operations, 1);
}
