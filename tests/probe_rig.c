/* SPDX-License-Identifier: Apache-2.0 */
#include "probe_rig.h"

#include "backend/backend.h"

int64_t elements_of(const training *run, int first, int end) {
  int64_t count = 0;
  for (int b = first; b < end; b++)
    count += petra_block_parameters(&run->plan->model, &run->plan->model.blocks[b]);
  return count;
}

petra_status download(const training *run, const petra_tensor_set *set, double **to) {
  for (int i = 0; i < set->count; i++) {
    PETRA_TRY(petra_op_download(run->network->backend, set->tensor[i], *to, PETRA_HOST_F64));
    *to += set->tensor[i]->elements;
  }
  return PETRA_OK;
}

double *copy_of(const double *values, size_t count) {
  double *copy;
  must(petra_allocate(&copy, count, sizeof *copy));
  memcpy(copy, values, count * sizeof *copy);
  return copy;
}

static petra_status keep_row(void *context, const petra_probe_row *row) {
  observed *o = context;
  const size_t j = (size_t)row->stages, p = (size_t)row->parameters, all = PETRA_MEASURES * PETRA_PAIRS;
  const int blocks = o->run->plan->model.block_count;
  ck_assert_int_lt(o->count, ROWS);
  found *f = &o->rows[o->count++];
  *f = (found){.microbatch = row->microbatch, .stages = row->stages, .parameters = row->parameters};
  f->stage = copy_of(row->stage, all * j);
  f->concatenated = copy_of(row->concatenated, PETRA_PAIRS * j);
  f->reconstruction = copy_of(row->reconstruction, j);
  f->parameter = copy_of(row->parameter, all * p);
  for (int g = 0; g < PETRA_GRADIENTS && row->gradients[g]; g++) {
    PETRA_TRY(petra_allocate(&f->gradients[g], (size_t)elements_of(o->run, 0, blocks), sizeof(double)));
    double *at = f->gradients[g];
    for (int b = 0; b < blocks; b++)
      PETRA_TRY(download(o->run, &row->gradients[g][b], &at));
  }
  return PETRA_OK;
}

static petra_status record_weights(observed *o, int j, int64_t version) {
  const petra_stage *stage = o->run->network->stage[j];
  int64_t count = elements_of(o->run, stage->options.first, stage->options.end);
  ck_assert_int_lt(version, VERSIONS);
  const petra_stage_mitigation *mitigation = &stage->options.mitigation;
  const bool predicted = petra_mitigation_predicts(mitigation) && version > mitigation->start;
  PETRA_TRY(petra_allocate(&o->weights[j][version], (size_t)count, sizeof(double)));
  PETRA_TRY(petra_allocate(&o->read[j][version], (size_t)count, sizeof(double)));
  double *at = o->weights[j][version], *read = o->read[j][version];
  for (int b = 0; b < stage->blocks; b++) {
    PETRA_TRY(download(o->run, &stage->sets[b].parameters, &at));
    PETRA_TRY(download(o->run, predicted ? &stage->sets[b].predicted : &stage->sets[b].parameters, &read));
  }
  return PETRA_OK;
}

static petra_status keep_action(void *context, const petra_trace_row *row) {
  observed *o = context;
  ck_assert_int_lt(o->action_count, ACTIONS);
  o->actions[o->action_count++] = *row;
  return row->action.kind == PETRA_ACTION_UPDATE ? record_weights(o, row->action.stage - 1, row->result.version_written)
                                                 : PETRA_OK;
}

void observe(observed *o, training *run) {
  memset(o, 0, sizeof *o);
  o->run = run;
  run->probe_row = keep_row;
  run->sink = keep_action;
  run->context = o;
  for (int j = 0; j < run->program.stages; j++)
    must(record_weights(o, j, 0));
  must(training_run(run));
}

void observed_fini(observed *o) {
  for (int i = 0; i < o->count; i++) {
    found *f = &o->rows[i];
    petra_free(f->stage);
    petra_free(f->concatenated);
    petra_free(f->reconstruction);
    petra_free(f->parameter);
    for (int g = 0; g < PETRA_GRADIENTS; g++)
      petra_free(f->gradients[g]);
  }
  for (int j = 0; j < STAGES; j++)
    for (int v = 0; v < VERSIONS; v++) {
      petra_free(o->weights[j][v]);
      petra_free(o->read[j][v]);
    }
}

double dot(const double *x, const double *y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += x[i] * y[i];
  return sum;
}

double apart(const double *x, const double *y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sqrt(sum / dot(y, y, count));
}

void check_figures(const observed *o, const found *f) {
  static const int pairs[PETRA_PAIRS][2] = {{0, 1}, {0, 2}, {1, 2}};
  const petra_model *model = &o->run->plan->model;
  for (int pair = 0; pair < PETRA_PAIRS; pair++) {
    const double *x = f->gradients[pairs[pair][0]], *y = f->gradients[pairs[pair][1]];
    int p = 0;
    for (int j = 0; j < f->stages; j++) {
      double mean[PETRA_MEASURES] = {0}, xy = 0, xx = 0, yy = 0;
      int count = 0;
      for (int b = o->run->plan->partition.first[j]; b < o->run->plan->partition.first[j + 1]; b++)
        for (int i = 0; i < petra_block_parameter_count(&model->blocks[b]); i++, p++) {
          petra_tensor_spec spec;
          petra_block_parameter(model, &model->blocks[b], i, &spec);
          int64_t n = 1;
          for (int d = 0; d < spec.rank; d++)
            n *= spec.shape[d];
          const double figure[] = {dot(x, y, n) / sqrt(dot(x, x, n) * dot(y, y, n)), sqrt(dot(x, x, n) / dot(y, y, n)),
                                   apart(x, y, n)};
          bool left_out = petra_block_parameter_is_invariant(model, &model->blocks[b], i);
          for (int m = 0; m < PETRA_MEASURES; m++) {
            ck_assert_double_eq_tol(parameter_value(f, m, pair, p), figure[m], 1e-12 * fmax(1, fabs(figure[m])));
            mean[m] += left_out ? 0 : figure[m];
          }
          count += !left_out;
          xy += left_out ? 0 : dot(x, y, n);
          xx += left_out ? 0 : dot(x, x, n);
          yy += left_out ? 0 : dot(y, y, n);
          x += n;
          y += n;
        }
      for (int m = 0; m < PETRA_MEASURES; m++)
        ck_assert_double_eq_tol(stage_value(f, m, pair, j), mean[m] / count, 1e-12 * fmax(1, fabs(mean[m] / count)));
      ck_assert_double_eq_tol(f->concatenated[pair * f->stages + j], xy / sqrt(xx * yy), 1e-12);
    }
    ck_assert_int_eq(p, f->parameters);
  }
}
