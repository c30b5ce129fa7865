/* SPDX-License-Identifier: Apache-2.0 */
/* The step of basis rotation for one matrix (optim.h): in double on the host, with GSL. */
#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "nn/optim.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_eigen.h>
#include <gsl/gsl_linalg.h>
#include <math.h>

/* One side of the matrix. The average and the basis are n by n; a side that is not rotated has none. */
typedef struct rotated_side {
  bool on;
  gsl_matrix_view average, basis;
} rotated_side;

/* The tensors on the host, and scratch matrices of their shape. */
typedef struct rotation {
  size_t rows, columns;
  gsl_matrix_view weights, gradient, mean, square, work[2];
  rotated_side sides[2]; /* sides of the rows and of the columns */
} rotation;

bool petra_rotation_has(const petra_optim *optim, int64_t rows, int64_t columns, int side) {
  return optim->keys.rotation_sides == PETRA_ROTATE_BOTH || side == (rows < columns ? 0 : 1);
}

static size_t length_of(const rotation *r, int side) {
  return side == 0 ? r->rows : r->columns;
}

static gsl_matrix_view take(double **room, size_t rows, size_t columns) {
  double *at = *room;
  *room += rows * columns;
  return gsl_matrix_view_array(at, rows, columns);
}

/* *storage: the memory of all matrices. */
static petra_status make_rotation(const petra_optim_tensors *tensors, int i, double **storage, rotation *r) {
  const petra_tensor *w = tensors->parameters[i];
  *r = (rotation){.rows = (size_t)w->shape[0], .columns = (size_t)w->shape[1]};
  size_t count = 6 * r->rows * r->columns;
  for (int side = 0; side < 2; side++) {
    r->sides[side].on = tensors->states[PETRA_ROTATION_AVERAGES + side][i] != NULL;
    count += r->sides[side].on ? 2 * length_of(r, side) * length_of(r, side) : 0;
  }
  PETRA_TRY(petra_allocate(storage, count, sizeof **storage));
  double *room = *storage;
  gsl_matrix_view *const whole[] = {&r->weights, &r->gradient, &r->mean, &r->square, &r->work[0], &r->work[1]};
  for (size_t k = 0; k < sizeof whole / sizeof *whole; k++)
    *whole[k] = take(&room, r->rows, r->columns);
  for (int side = 0; side < 2; side++)
    if (r->sides[side].on) {
      r->sides[side].average = take(&room, length_of(r, side), length_of(r, side));
      r->sides[side].basis = take(&room, length_of(r, side), length_of(r, side));
    }
  return PETRA_OK;
}

/* Transfers between the tensors and the host: moves everything that a step reads, or that it has changed. */
static petra_status move(petra_backend *backend, const petra_optim_tensors *tensors, int i, rotation *r, bool up) {
  const struct {
    petra_tensor *tensor;
    gsl_matrix_view *host;
    bool changes;
  } all[] = {{tensors->gradients[i], &r->gradient, false},
             {tensors->parameters[i], &r->weights, true},
             {tensors->states[0][i], &r->mean, true},
             {tensors->states[1][i], &r->square, true},
             {tensors->states[PETRA_ROTATION_AVERAGES][i], &r->sides[0].average, true},
             {tensors->states[PETRA_ROTATION_AVERAGES + 1][i], &r->sides[1].average, true},
             {tensors->states[PETRA_ROTATION_BASES][i], &r->sides[0].basis, true},
             {tensors->states[PETRA_ROTATION_BASES + 1][i], &r->sides[1].basis, true}};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    if (!all[k].tensor || (up && !all[k].changes))
      continue;
    double *data = all[k].host->matrix.data;
    PETRA_TRY(up ? petra_op_upload(backend, all[k].tensor, data, PETRA_HOST_F64)
                 : petra_op_download(backend, all[k].tensor, data, PETRA_HOST_F64));
  }
  return PETRA_OK;
}

/* average = keep average + (1 - keep) G G^T, or G^T G on the side of the columns. */
static void add_products(rotation *r, int side, double keep) {
  const gsl_matrix *g = &r->gradient.matrix;
  gsl_blas_dgemm(side == 0 ? CblasNoTrans : CblasTrans, side == 0 ? CblasTrans : CblasNoTrans, 1 - keep, g, g, keep,
                 &r->sides[side].average.matrix);
}

static petra_status no_room(size_t n) {
  return petra_fail(PETRA_NO_MEMORY, "optim.name: basis-rotation: no memory for the basis of a side of %zu", n);
}

/* Sets column `k` of the basis to the axis with the smallest part in the columns before it, made orthogonal to them.
 * outside[j]: the square of the part of axis j that lies outside these columns. */
static void complete_column(gsl_matrix *basis, size_t k, gsl_vector *outside, gsl_vector *room) {
  const size_t axis = gsl_vector_max_index(outside);
  gsl_vector_view column = gsl_matrix_column(basis, k);
  gsl_vector_set_basis(&column.vector, axis);
  for (int pass = 0; k > 0 && pass < 2; pass++) { /* a second pass removes the rounding error of the first */
    const gsl_matrix_view before = gsl_matrix_submatrix(basis, 0, 0, basis->size1, k);
    gsl_vector_view inside = gsl_vector_subvector(room, 0, k);
    gsl_blas_dgemv(CblasTrans, 1, &before.matrix, &column.vector, 0, &inside.vector);
    gsl_blas_dgemv(CblasNoTrans, -1, &before.matrix, &inside.vector, 1, &column.vector);
  }
  gsl_vector_scale(&column.vector, 1 / gsl_blas_dnrm2(&column.vector));
}

/* If an eigenvalue is at most this share of the largest, its eigenvector is an arbitrary vector that is orthogonal to
 * the others. */
#define NOUGHT 1e-13

/* Subtracts column `k` from the parts of the axes outside the columns. */
static void leave_inside(const gsl_matrix *basis, size_t k, gsl_vector *outside) {
  for (size_t j = 0; j < outside->size; j++)
    *gsl_vector_ptr(outside, j) -= gsl_matrix_get(basis, j, k) * gsl_matrix_get(basis, j, k);
}

/* basis = the eigenvectors of the average, in the order of decreasing eigenvalues; the others are axes as far as
 * possible. `values`, `outside` and `room` have the basis's length. */
static void make_eigenvectors(rotated_side *side, gsl_matrix *average, gsl_vector *values, gsl_vector *outside,
                              gsl_vector *room, gsl_eigen_symmv_workspace *workspace) {
  gsl_matrix *basis = &side->basis.matrix;
  gsl_matrix_memcpy(average, &side->average.matrix);
  gsl_eigen_symmv(average, values, basis, workspace);
  gsl_eigen_symmv_sort(values, basis, GSL_EIGEN_SORT_VAL_DESC);
  gsl_vector_set_all(outside, 1);
  for (size_t k = 0; k < values->size; k++) {
    if (!(gsl_vector_get(values, k) > NOUGHT * gsl_vector_get(values, 0)))
      complete_column(basis, k, outside, room);
    leave_inside(basis, k, outside);
  }
}

static petra_status first_basis(rotated_side *side) {
  const size_t n = side->average.matrix.size1;
  gsl_eigen_symmv_workspace *workspace = gsl_eigen_symmv_alloc(n);
  gsl_matrix *average = gsl_matrix_alloc(n, n);
  gsl_vector *values = gsl_vector_alloc(n), *outside = gsl_vector_alloc(n), *room = gsl_vector_alloc(n);
  const bool all = workspace && average && values && outside && room;
  if (all)
    make_eigenvectors(side, average, values, outside, room, workspace);
  gsl_eigen_symmv_free(workspace);
  gsl_matrix_free(average);
  gsl_vector_free(values);
  gsl_vector_free(outside);
  gsl_vector_free(room);
  return all ? PETRA_OK : no_room(n);
}

/* Sorts the columns of the basis, and of `image` (average times basis), by the diagonal of basis^T image, largest
 * first, and with them the rows or columns of s. `diagonal` is scratch memory. */
static void sort_basis(rotation *r, int side, gsl_matrix *image, gsl_vector *diagonal) {
  gsl_matrix *basis = &r->sides[side].basis.matrix, *square = &r->square.matrix;
  gsl_vector_set_zero(diagonal);
  for (size_t j = 0; j < basis->size1; j++)
    for (size_t i = 0; i < basis->size1; i++)
      *gsl_vector_ptr(diagonal, i) += gsl_matrix_get(basis, j, i) * gsl_matrix_get(image, j, i);
  for (size_t i = 0; i + 1 < basis->size1; i++) {
    gsl_vector_const_view left = gsl_vector_const_subvector(diagonal, i, diagonal->size - i);
    const size_t largest = i + gsl_vector_max_index(&left.vector);
    gsl_vector_swap_elements(diagonal, i, largest);
    gsl_matrix_swap_columns(basis, i, largest);
    gsl_matrix_swap_columns(image, i, largest);
    if (side == 0)
      gsl_matrix_swap_rows(square, i, largest);
    else
      gsl_matrix_swap_columns(square, i, largest);
  }
}

/* Does one orthogonal iteration: the Q-factor of average times basis, with its columns sorted. */
static petra_status next_basis(rotation *r, int side) {
  rotated_side *s = &r->sides[side];
  const size_t n = s->basis.matrix.size1;
  gsl_matrix *image = gsl_matrix_alloc(n, n), *reflectors = gsl_matrix_alloc(n, n), *rest = gsl_matrix_alloc(n, n);
  gsl_vector *diagonal = gsl_vector_alloc(n);
  const bool room = image && reflectors && rest && diagonal;
  if (room) {
    gsl_blas_dgemm(CblasNoTrans, CblasNoTrans, 1, &s->average.matrix, &s->basis.matrix, 0, image);
    sort_basis(r, side, image, diagonal);
    gsl_linalg_QR_decomp_r(image, reflectors);
    gsl_linalg_QR_unpack_r(image, reflectors, &s->basis.matrix, rest);
  }
  gsl_matrix_free(image);
  gsl_matrix_free(reflectors);
  gsl_matrix_free(rest);
  gsl_vector_free(diagonal);
  return room ? PETRA_OK : no_room(n);
}

/* Updates the average of gradient products on each rotated side, and the basis if it is due at step `t`. */
static petra_status make_bases(const petra_optim *optim, rotation *r, int64_t t) {
  for (int side = 0; side < 2; side++)
    if (r->sides[side].on)
      add_products(r, side, optim->keys.beta2);
  for (int side = 0; side < 2; side++) {
    if (!r->sides[side].on || (t > 1 && t % optim->keys.rotation_every != 0))
      continue;
    PETRA_TRY(t == 1 ? first_basis(&r->sides[side]) : next_basis(r, side));
  }
  return PETRA_OK;
}

/* Transforms `matrix`, which has the shape of the weights, into the bases (P^T x Q) or `back` (P x Q^T), in one of the
 * two scratch matrices; the other is overwritten too. */
static gsl_matrix *rotate(rotation *r, const gsl_matrix *matrix, bool back) {
  gsl_matrix *in = &r->work[0].matrix, *out = &r->work[1].matrix;
  if (r->sides[0].on)
    gsl_blas_dgemm(back ? CblasNoTrans : CblasTrans, CblasNoTrans, 1, &r->sides[0].basis.matrix, matrix, 0, in);
  else
    gsl_matrix_memcpy(in, matrix);
  if (!r->sides[1].on)
    return in;
  gsl_blas_dgemm(CblasNoTrans, back ? CblasTrans : CblasNoTrans, 1, in, &r->sides[1].basis.matrix, 0, out);
  return out;
}

static void add_squares(rotation *r, const gsl_matrix *rotated, double keep) {
  for (size_t i = 0; i < r->rows * r->columns; i++) {
    const double g = rotated->data[i];
    r->square.matrix.data[i] = keep * r->square.matrix.data[i] + (1 - keep) * g * g;
  }
}

static void add_gradient(rotation *r, double keep) {
  for (size_t i = 0; i < r->rows * r->columns; i++)
    r->mean.matrix.data[i] = keep * r->mean.matrix.data[i] + (1 - keep) * r->gradient.matrix.data[i];
}

/* Adam's step in the bases, transformed back: updates w in step `t`. The gradient is overwritten. */
static void move_weights(const petra_optim *optim, rotation *r, double lr, double decay, int64_t t) {
  const double correction = 1 - pow(optim->keys.beta2, (double)t), rate = lr / (1 - pow(optim->keys.beta1, (double)t));
  add_squares(r, rotate(r, &r->gradient.matrix, false), optim->keys.beta2);
  add_gradient(r, optim->keys.beta1);
  const gsl_matrix *mean = rotate(r, &r->mean.matrix, false);
  for (size_t i = 0; i < r->rows * r->columns; i++)
    r->gradient.matrix.data[i] = mean->data[i] / (sqrt(r->square.matrix.data[i] / correction) + optim->keys.epsilon);
  const gsl_matrix *direction = rotate(r, &r->gradient.matrix, true);
  for (size_t i = 0; i < r->rows * r->columns; i++)
    r->weights.matrix.data[i] = (1 - lr * decay) * r->weights.matrix.data[i] - rate * direction->data[i];
}

petra_status petra_rotation_step(const petra_optim *optim, const petra_compute *compute,
                                 const petra_optim_tensors *tensors, int i, double lr, int64_t steps) {
  PETRA_FREED double *storage = NULL;
  rotation r;
  if (compute->backend->dry)
    return PETRA_OK;
  PETRA_TRY(make_rotation(tensors, i, &storage, &r));
  PETRA_TRY(move(compute->backend, tensors, i, &r, false));
  PETRA_TRY(make_bases(optim, &r, steps + 1));
  move_weights(optim, &r, lr, tensors->decay[i], steps + 1);
  return move(compute->backend, tensors, i, &r, true);
}

void petra_rotation_cost(const petra_optim *optim, const petra_tensor_spec *spec, double *flops, double *passes) {
  const double rows = spec->shape[0], columns = spec->shape[1], all = rows * columns;
  for (int side = 0; side < 2; side++) {
    if (!petra_rotation_has(optim, spec->shape[0], spec->shape[1], side))
      continue;
    const double n = side == 0 ? rows : columns, square = n * n, seldom = 1.0 / (double)optim->keys.rotation_every;
    /* Counts the average, two transformations into the basis and one back, and for an iteration a product and the
     * Q-factor, 2 n^3 and 8/3 n^3. */
    *flops += 8 * all * n + 14.0 / 3 * square * n * seldom;
    *passes += 7 * all + 5 * square + 6 * square * seldom;
  }
}
