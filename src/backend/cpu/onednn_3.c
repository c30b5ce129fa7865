/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/onednn_version.h"

dnnl_status_t onednn_describe(int count, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag,
                              onednn_description *out) {
  dnnl_memory_desc_t made;
  TRY(dnnl_memory_desc_create_with_tag(&made, count, dims, type, tag));
  *out = made;
  return dnnl_success;
}

void onednn_forget(onednn_description description) {
  if (description)
    dnnl_memory_desc_destroy((dnnl_memory_desc_t)(uintptr_t)description);
}

static dnnl_status_t describe_convolution(dnnl_engine_t engine, dnnl_primitive_attr_t attributes,
                                          const onednn_made_of *of, dnnl_primitive_desc_t *out) {
  const dnnl_alg_kind_t direct = dnnl_convolution_direct;
  const dnnl_dims_t strides = {of->stride, of->stride}, pads = {of->pad, of->pad}, dense = {0, 0};
  switch (of->pass) {
  case CPU_FORWARD:
    return dnnl_convolution_forward_primitive_desc_create(out, engine, dnnl_forward_training, direct, of->x, of->w,
                                                          NULL, of->y, strides, dense, pads, pads, attributes);
  case CPU_BACKWARD_DATA:
    return dnnl_convolution_backward_data_primitive_desc_create(out, engine, direct, of->x, of->w, of->y, strides,
                                                                dense, pads, pads, of->hint, attributes);
  case CPU_BACKWARD_WEIGHTS:
    break;
  }
  return dnnl_convolution_backward_weights_primitive_desc_create(out, engine, direct, of->x, of->w, NULL, of->y,
                                                                 strides, dense, pads, pads, of->hint, attributes);
}

dnnl_status_t onednn_describe_primitive(dnnl_engine_t engine, dnnl_primitive_attr_t attributes,
                                        const onednn_made_of *of, dnnl_primitive_desc_t *out) {
  if (!of->linear)
    return describe_convolution(engine, attributes, of, out);
  switch (of->pass) {
  case CPU_FORWARD:
    return dnnl_inner_product_forward_primitive_desc_create(out, engine, dnnl_forward_training, of->x, of->w, of->b,
                                                            of->y, attributes);
  case CPU_BACKWARD_DATA:
    return dnnl_inner_product_backward_data_primitive_desc_create(out, engine, of->x, of->w, of->y, of->hint,
                                                                  attributes);
  case CPU_BACKWARD_WEIGHTS:
    break;
  }
  return dnnl_inner_product_backward_weights_primitive_desc_create(out, engine, of->x, of->w, NULL, of->y, of->hint,
                                                                   attributes);
}

dnnl_status_t onednn_append_sum(dnnl_post_ops_t operations) {
  return dnnl_post_ops_append_sum(operations, 1, 0, dnnl_data_type_undef);
}
