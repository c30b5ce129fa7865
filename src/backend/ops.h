/* The operations as the network code calls them: each checks that its tensors exist, belong to the backend,
 * have the kinds and shapes that backend.h says and alias only where that is allowed, and then asks the
 * backend. Parameters and meaning are those of the entry of the same name in petra_backend_ops (backend.h).
 *
 * Failures found here, each one line that starts with the operation's name: PETRA_SHAPE (kind, shape or
 * geometry), PETRA_DATA (a label out of range), PETRA_INTERNAL (a tensor that is missing, of another backend,
 * or that aliases an output). Outputs are then untouched. */
#ifndef PETRA_BACKEND_OPS_H
#define PETRA_BACKEND_OPS_H

#include "backend/backend.h"

petra_status petra_op_upload(petra_backend *backend, petra_tensor *tensor, const void *host, petra_host_type type);
petra_status petra_op_download(petra_backend *backend, const petra_tensor *tensor, void *host, petra_host_type type);

petra_status petra_op_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x);

petra_status petra_op_copy(petra_backend *backend, const petra_tensor *x, petra_tensor *y);
petra_status petra_op_fill(petra_backend *backend, petra_tensor *y, double value);
petra_status petra_op_axpy(petra_backend *backend, double alpha, const petra_tensor *x, petra_tensor *y);
petra_status petra_op_add(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, petra_tensor *y);
petra_status petra_op_dot(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *out);

petra_status petra_op_split(petra_backend *backend, const petra_tensor *x, petra_tensor *x1, petra_tensor *x2);
petra_status petra_op_concat(petra_backend *backend, const petra_tensor *x1, const petra_tensor *x2, petra_tensor *x);

petra_status petra_op_space_to_depth(petra_backend *backend, const petra_tensor *x, petra_tensor *y);
petra_status petra_op_depth_to_space(petra_backend *backend, const petra_tensor *y, petra_tensor *x);

petra_status petra_op_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                                   const petra_tensor *w, petra_tensor *y);
petra_status petra_op_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry,
                                         const petra_tensor *dy, const petra_tensor *w, petra_tensor *dx);
petra_status petra_op_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                           const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw);

petra_status petra_op_norm_forward(petra_backend *backend, const petra_norm_forward *arguments);
petra_status petra_op_norm_backward(petra_backend *backend, const petra_norm_backward *arguments);
petra_status petra_op_norm_evaluate(petra_backend *backend, const petra_norm_forward *arguments);
petra_status petra_op_norm_update_running(petra_backend *backend, const petra_tensor *mean,
                                          const petra_tensor *variance, int64_t samples, double momentum,
                                          petra_tensor *running_mean, petra_tensor *running_variance);

petra_status petra_op_relu_backward(petra_backend *backend, const petra_tensor *y, const petra_tensor *dy,
                                    petra_tensor *dx);

petra_status petra_op_max_pool_forward(petra_backend *backend, const petra_pool_geometry *geometry,
                                       const petra_tensor *x, petra_tensor *y, petra_tensor *mask);
petra_status petra_op_max_pool_backward(petra_backend *backend, const petra_pool_geometry *geometry,
                                        const petra_tensor *dy, const petra_tensor *mask, petra_tensor *dx);

petra_status petra_op_average_pool_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column);
petra_status petra_op_average_pool_backward(petra_backend *backend, const petra_tensor *dy, int column,
                                            petra_tensor *dx);

petra_status petra_op_linear_forward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                     const petra_tensor *b, petra_tensor *y);
petra_status petra_op_linear_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                      const petra_tensor *dy, petra_tensor *dx, petra_tensor *dw, petra_tensor *db);

petra_status petra_op_cross_entropy(petra_backend *backend, petra_cross_entropy *arguments);

petra_status petra_op_sgd_step(petra_backend *backend, const petra_sgd_step *arguments);

#endif
