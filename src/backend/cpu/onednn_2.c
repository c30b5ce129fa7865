/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/onednn_version.h"

#include <stdlib.h>

dnnl_status_t onednn_describe(const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag,
                              onednn_description *out) {
  dnnl_memory_desc_t *made = malloc(sizeof *made); /* who is told of the failure has a line for it */
  if (!made)
    return dnnl_out_of_memory;
  *out = made;
  return dnnl_memory_desc_init_by_tag(made, 4, dims, type, tag);
}

void onednn_forget(onednn_description description) {
  free((void *)(uintptr_t)description);
}

dnnl_status_t onednn_describe_conv(dnnl_engine_t engine, dnnl_primitive_attr_t attributes, const onednn_conv *conv,
                                   dnnl_primitive_desc_t *out) {
  const dnnl_alg_kind_t direct = dnnl_convolution_direct;
  const dnnl_dims_t strides = {conv->stride, conv->stride}, pads = {conv->pad, conv->pad};
  dnnl_convolution_desc_t made;
  switch (conv->operation) {
  case CPU_CONV_FORWARD:
    TRY(dnnl_convolution_forward_desc_init(&made, dnnl_forward_training, direct, conv->x, conv->w, NULL, conv->y,
                                           strides, pads, pads));
    break;
  case CPU_CONV_BACKWARD_DATA:
    TRY(dnnl_convolution_backward_data_desc_init(&made, direct, conv->x, conv->w, conv->y, strides, pads, pads));
    break;
  case CPU_CONV_BACKWARD_FILTER:
    TRY(dnnl_convolution_backward_weights_desc_init(&made, direct, conv->x, conv->w, NULL, conv->y, strides, pads,
                                                    pads));
    break;
  }
  return dnnl_primitive_desc_create(out, &made, attributes, engine, conv->hint);
}
