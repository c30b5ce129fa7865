/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between oneDNN 2 and 3: onednn_2.c or onednn_3.c, as configure found it. Private to onednn*.c. */
#ifndef PETRA_BACKEND_CPU_ONEDNN_VERSION_H
#define PETRA_BACKEND_CPU_ONEDNN_VERSION_H

#include "backend/cpu/onednn.h" /* circle: what a convolution is, is told there */

#include <oneapi/dnnl/dnnl.h>

/* Passes a failure of oneDNN on, within functions that return its status. */
#define TRY(expression)                                                                                                \
  do {                                                                                                                 \
    dnnl_status_t try_status_ = (expression);                                                                          \
    if (try_status_ != dnnl_success)                                                                                   \
      return try_status_;                                                                                              \
  } while (0)

/* The address of a description of memory, which version 3 keeps to itself. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_description;
#else
typedef const dnnl_memory_desc_t *onednn_description;
#endif

/* Of four dimensions; to be given to onednn_forget, which allows NULL. */
dnnl_status_t onednn_describe(const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag,
                              onednn_description *out);
void onednn_forget(onednn_description description);

typedef struct onednn_conv {
  cpu_conv_operation operation;
  int stride, pad;
  onednn_description x, w, y; /* or their gradients */
  dnnl_primitive_desc_t hint; /* of a forward pass; NULL for one */
} onednn_conv;

dnnl_status_t onednn_describe_conv(dnnl_engine_t engine, dnnl_primitive_attr_t attributes, const onednn_conv *conv,
                                   dnnl_primitive_desc_t *out);

#endif
