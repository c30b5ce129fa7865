/* Checks of the arguments of one operation, for ops.c. Each function logs and returns the first thing that is
 * wrong; `op` is the operation's name and starts the line. */
#ifndef PETRA_BACKEND_CHECK_SHAPES_H
#define PETRA_BACKEND_CHECK_SHAPES_H

#include "backend/backend.h"

enum {
  PETRA_ANY = -1,             /* in an expected shape: any extent */
  PETRA_POOL_WINDOW_MAX = 16, /* so that a position in the window fits in a byte */
};

typedef struct petra_check {
  const petra_backend *backend;
  const char *op;
} petra_check;

/* A tensor of this kind and shape (PETRA_ANY: not looked at); `name` is its name in backend.h. */
petra_status petra_check_tensor(const petra_check *check, const char *name, const petra_tensor *tensor,
                                petra_tensor_kind kind, int n, int c, int h, int w);

/* A vector of n elements. */
petra_status petra_check_vector(const petra_check *check, const char *name, const petra_tensor *tensor, int n);

/* Any tensor that holds numbers: all kinds but masks. */
petra_status petra_check_numbers(const petra_check *check, const char *name, const petra_tensor *tensor);

/* A tensor of numbers of the kind and shape of `model`, which was checked before. */
petra_status petra_check_like(const petra_check *check, const char *name, const petra_tensor *tensor,
                              const petra_tensor *model);

/* `output` is none of the tensors `inputs`, which end with NULL; `names` are theirs, as "x, w, dy". */
petra_status petra_check_apart(const petra_check *check, const char *output_name, const petra_tensor *output,
                               const char *names, const petra_tensor *const *inputs);

/* A convolution of x (N, C, H, W) with w (O, C, KH, KW) to y (N, O, OH, OW), or the gradients of these. */
petra_status petra_check_conv(const petra_check *check, const petra_conv_geometry *geometry, const char *x_name,
                              const petra_tensor *x, const char *w_name, const petra_tensor *w, const char *y_name,
                              const petra_tensor *y);

/* A max-pool of x to y, or the gradients of these; mask (may be NULL) has the shape of y. */
petra_status petra_check_max_pool(const petra_check *check, const petra_pool_geometry *geometry, const char *x_name,
                                  const petra_tensor *x, const char *y_name, const petra_tensor *y,
                                  const petra_tensor *mask);

#endif
