/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/onednn_version.h"

dnnl_status_t onednn_describe(const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag,
                              onednn_description *out) {
  dnnl_memory_desc_t made;
  TRY(dnnl_memory_desc_create_with_tag(&made, 4, dims, type, tag));
  *out = made;
  return dnnl_success;
}

void onednn_forget(onednn_description description) {
  if (description)
    dnnl_memory_desc_destroy((dnnl_memory_desc_t)(uintptr_t)description);
}

dnnl_status_t onednn_describe_conv(dnnl_engine_t engine, dnnl_primitive_attr_t attributes, const onednn_conv *conv,
                                   dnnl_primitive_desc_t *out) {
  const dnnl_alg_kind_t direct = dnnl_convolution_direct;
  const dnnl_dims_t strides = {conv->stride, conv->stride}, pads = {conv->pad, conv->pad}, dense = {0, 0};
  switch (conv->operation) {
  case CPU_CONV_FORWARD:
    return dnnl_convolution_forward_primitive_desc_create(out, engine, dnnl_forward_training, direct, conv->x, conv->w,
                                                          NULL, conv->y, strides, dense, pads, pads, attributes);
  case CPU_CONV_BACKWARD_DATA:
    return dnnl_convolution_backward_data_primitive_desc_create(out, engine, direct, conv->x, conv->w, conv->y, strides,
                                                                dense, pads, pads, conv->hint, attributes);
  case CPU_CONV_BACKWARD_FILTER:
    break;
  }
  return dnnl_convolution_backward_weights_primitive_desc_create(out, engine, direct, conv->x, conv->w, NULL, conv->y,
                                                                 strides, dense, pads, pads, conv->hint, attributes);
}
