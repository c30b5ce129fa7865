/* SPDX-License-Identifier: Apache-2.0 */
/* The differences between oneDNN 2 and 3, in onednn_2.c or onednn_3.c, whichever configure chose. Private to
 * onednn*.c. */
#pragma once

#include "backend/cpu/onednn.h" /* circle: it defines what a convolution is */

#include <oneapi/dnnl/dnnl.h>

/* Passes on a failure of oneDNN within functions that return its status. */
#define TRY(expression)                                                                                                \
  do {                                                                                                                 \
    dnnl_status_t try_status_ = (expression);                                                                          \
    if (try_status_ != dnnl_success)                                                                                   \
      return try_status_;                                                                                              \
  } while (0)

/* The address of a memory descriptor; in version 3 the library owns the descriptor. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_description;
#else
typedef const dnnl_memory_desc_t *onednn_description;
#endif

/* To be released with onednn_forget, which allows NULL. */
dnnl_status_t onednn_describe(int count, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag,
                              onednn_description *out);
void onednn_forget(onednn_description description);

typedef struct onednn_made_of {
  cpu_pass pass;
  bool linear;
  int stride, pad;
  onednn_description x, w, y, b; /* or their gradients; b: forward of a linear map, or NULL */
  dnnl_primitive_desc_t hint;    /* of a forward pass; NULL for a forward pass itself */
} onednn_made_of;

dnnl_status_t onednn_describe_primitive(dnnl_engine_t engine, dnnl_primitive_attr_t attributes,
                                        const onednn_made_of *of, dnnl_primitive_desc_t *out);

/* Adds the result to the existing contents. */
dnnl_status_t onednn_append_sum(dnnl_post_ops_t operations);
