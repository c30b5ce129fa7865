/* SPDX-License-Identifier: Apache-2.0 */
#include "record/training_log.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* The state of an epoch so far. A row is written when the losses of its epoch are complete and, if the epoch is
 * evaluated, the result of the evaluation is known; rows are written in the order of epochs. A checkpoint contains
 * these members. */
typedef struct epoch_state {
  double loss_sum, top1_sum; /* sums over labels (images, tokens) */
  double labels;
  double train_s; /* wall time up to the last loss of the epoch, or up to the evaluation after it, without pauses */
  double lr, wall_s;
  double complete, evaluated; /* 0 or 1 */
  double eval_labels, eval_loss, eval_top1, eval_top5;
} epoch_state;

struct petra_training_log {
  petra_stage_observer base;
  petra_training_log_options options;
  const petra_program_ops *program;
  const petra_program_options *program_options;
  petra_progress progress;
  double start_s;
  double last_s;  /* the time up to this moment has been counted in a train_s, or excluded */
  double pause_s; /* during a pause: its start */
  int pauses;     /* number of pauses that last now (an evaluation, a checkpoint) */
  bool evaluating;
  int64_t epochs;  /* whole epochs of the run */
  int64_t begun;   /* epochs with a loss of this run; a longer run may resume the last of them */
  int64_t written; /* rows of /epoch written */
  int64_t microbatches, expected;
  double loss_sum; /* over all labels of the run */
  int64_t labels;
  epoch_state *states;
  petra_scores *recalibrated; /* for each state, if the run recalibrates; NaN: not known (yet) */
  petra_run_h5_epoch *rows;
};

static bool is_evaluated(const petra_training_log *log, int64_t epoch) {
  int64_t every = log->program_options->eval_every;
  return every > 0 && (epoch + 1) % every == 0;
}

/* Prints "loss 2.3026, top-1 10.00 %", with "-" in the same width for an unknown value. */
static void print_accuracy(const char *of, double loss, double top1) {
  if (isnan(loss))
    printf("  %s loss       -, top-1      - %%", of);
  else
    printf("  %s loss %7.4f, top-1 %6.2f %%", of, loss, 100 * top1);
}

static void print_perplexity(double loss) {
  if (isnan(loss))
    printf(", perplexity        -");
  else
    printf(", perplexity %8.3f", exp(loss));
}

/* Prints the line of an epoch. Columns are aligned, and the line appears at once, also in a pipe. */
static void print_epoch(petra_training_log *log, const petra_run_h5_epoch *row) {
  const bool evaluates = log->program_options->eval_every > 0;
  const petra_config *config = log->options.plan->config;
  const petra_sample_kind samples = petra_sample_kind_of(config);
  int width = snprintf(NULL, 0, "%lld", (long long)log->epochs);
  const char *labels = petra_sample_words_of(samples)->labels;
  long seconds = lround(row->wall_s);
  petra_progress_hide(&log->progress);
  printf("epoch %*d/%lld", width, row->epoch + 1, (long long)log->epochs);
  print_accuracy("train", row->train_loss, row->train_top1);
  if (evaluates)
    print_accuracy("eval", row->eval_loss, row->eval_top1);
  if (evaluates && samples == PETRA_SAMPLE_TOKENS)
    print_perplexity(row->eval_loss);
  if (evaluates && config->data.recalibrate > 0)
    print_accuracy("recalibrated", row->eval_loss_recalibrated, row->eval_top1_recalibrated);
  if (isnan(row->lr))
    printf("  lr -       ");
  else
    printf("  lr %-8.4g", row->lr);
  if (isnan(row->rate))
    printf("      - %s/s", labels);
  else
    printf(" %6.0f %s/s", row->rate, labels);
  printf("  %ld:%02ld:%02ld\n", seconds / 3600, seconds / 60 % 60, seconds % 60);
  fflush(stdout);
}

static void put_recalibrated(petra_run_h5_epoch *row, const petra_scores *scores) {
  row->eval_loss_recalibrated = scores->loss;
  row->eval_top1_recalibrated = scores->top1;
  row->eval_top5_recalibrated = scores->top5;
}

/* Writes the rows that are complete, in order. */
static petra_status write_epochs(petra_training_log *log) {
  for (; log->written < log->epochs; log->written++) {
    const epoch_state *state = &log->states[log->written];
    bool evaluated = is_evaluated(log, log->written);
    if (state->complete == 0 || (evaluated && state->evaluated == 0))
      return PETRA_OK;
    petra_run_h5_epoch row = {.epoch = (int32_t)log->written,
                              .train_loss = state->labels > 0 ? state->loss_sum / state->labels : NAN,
                              .train_top1 = state->labels > 0 ? state->top1_sum / state->labels : NAN,
                              .eval_loss = evaluated ? state->eval_loss : NAN,
                              .eval_top1 = evaluated ? state->eval_top1 : NAN,
                              .eval_top5 = evaluated ? state->eval_top5 : NAN,
                              .lr = state->labels > 0 ? state->lr : NAN,
                              .wall_s = state->wall_s,
                              .rate = state->train_s > 0 ? state->labels / state->train_s : NAN};
    put_recalibrated(&row, &log->recalibrated[log->written]);
    log->rows[log->written] = row;
    if (log->options.run_h5)
      PETRA_TRY(petra_run_h5_epoch_row(log->options.run_h5, &row));
    if (log->options.print_epochs)
      print_epoch(log, &row);
  }
  return PETRA_OK;
}

/* Returns the current time or, during a pause, its start: a loss that is reported during a pause was known before
 * it. */
static double training_clock_s(const petra_training_log *log) {
  return log->pauses > 0 ? log->pause_s : petra_clock_s();
}

void petra_training_log_pause(petra_training_log *log) {
  log->pause_s = training_clock_s(log);
  log->pauses++;
}

void petra_training_log_go_on(petra_training_log *log) {
  if (--log->pauses == 0)
    log->last_s += petra_clock_s() - log->pause_s;
}

static petra_status on_evaluating(petra_stage_observer *base) {
  petra_training_log *log = (petra_training_log *)base;
  if (!log->evaluating)
    petra_training_log_pause(log);
  log->evaluating = true;
  return PETRA_OK;
}

/* Counts the time since the last loss, without pauses, in the epoch that was evaluated; if no loss of that epoch came
 * back, the time counts in the epoch of the next loss. */
static void count_until_evaluation(petra_training_log *log, epoch_state *state) {
  if (log->evaluating)
    petra_training_log_go_on(log);
  else /* by arrival */
    log->last_s = petra_clock_s();
  log->evaluating = false;
  if (state->labels == 0)
    return;
  state->train_s += training_clock_s(log) - log->last_s;
  log->last_s = training_clock_s(log);
}

static petra_status on_loss(petra_stage_observer *base, int64_t microbatch, const petra_loss *loss, double lr,
                            int64_t virtual_ns) {
  petra_training_log *log = (petra_training_log *)base;
  const petra_program_options *program = log->program_options;
  int64_t epoch = petra_program_loss_epoch(log->program, program, microbatch);
  const double now = petra_clock_s(), trained_s = training_clock_s(log);
  const petra_run_h5_train row = {.microbatch = microbatch,
                                  .epoch = (int32_t)(microbatch / program->batches),
                                  .lr = lr,
                                  .loss = loss->loss,
                                  .top1 = (double)loss->top1 / loss->images,
                                  .wall_s = now - log->start_s,
                                  .virtual_s = 1e-9 * (double)virtual_ns};
  if (log->options.run_h5)
    PETRA_TRY(petra_run_h5_train_row(log->options.run_h5, &row));
  log->microbatches++;
  log->loss_sum += loss->loss * loss->images;
  log->labels += loss->images;
  char text[128];
  snprintf(text, sizeof text, "epoch %lld, loss %.4f", (long long)epoch + 1, loss->loss);
  /* When the first loss comes back, all microbatches whose losses will not come back are under way. */
  const int64_t more = program->microbatches - log->expected;
  petra_progress_update(&log->progress, log->microbatches + more, program->microbatches, text);
  if (epoch >= log->begun) {
    log->last_s = trained_s;
    return PETRA_OK;
  }
  /* An epoch that is too short for any loss to come back (N < J) is complete as soon as a later epoch begins. */
  for (int64_t e = log->written; e < epoch; e++)
    log->states[e].complete = 1;
  epoch_state *state = &log->states[epoch];
  state->loss_sum += loss->loss * loss->images;
  state->top1_sum += loss->top1;
  state->labels += loss->images;
  state->train_s += trained_s - log->last_s;
  state->wall_s = now - log->start_s;
  state->lr = lr;
  log->last_s = trained_s;
  state->complete = petra_program_loss_epoch(log->program, program, microbatch + 1) > epoch;
  /* Flushes, because an evaluation may take longer than the flush interval. */
  if (state->complete != 0 && log->options.run_h5 && is_evaluated(log, epoch))
    PETRA_TRY(petra_run_h5_flush(log->options.run_h5));
  return write_epochs(log);
}

static petra_status on_evaluation(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation) {
  petra_training_log *log = (petra_training_log *)base;
  epoch_state *state = &log->states[microbatch / log->program_options->batches];
  state->eval_labels = (double)evaluation->images;
  state->eval_loss = evaluation->loss;
  state->eval_top1 = evaluation->top1;
  state->eval_top5 = evaluation->top5;
  log->recalibrated[state - log->states] = evaluation->recalibrated;
  state->evaluated = 1;
  if (state->labels == 0)
    state->complete = 1;
  count_until_evaluation(log, state);
  state->wall_s = petra_clock_s() - log->start_s;
  return write_epochs(log);
}

PETRA_DESTROYS(petra_training_log_destroy, petra_training_log)

petra_status petra_training_log_create(const petra_training_log_options *options, petra_training_log **out) {
  static const petra_stage_observer_ops ops = {
      .loss = on_loss, .evaluating = on_evaluating, .evaluated = on_evaluation};
  const petra_program_options *program = &options->plan->program;
  PETRA_DESTROYED(petra_training_log_destroy) petra_training_log *log = NULL;
  PETRA_TRY(petra_allocate(&log, 1, sizeof *log));
  log->base.ops = &ops;
  log->options = *options;
  log->program = options->plan->method.program;
  log->program_options = program;
  log->epochs = program->microbatches / program->batches;
  log->expected = petra_program_losses(log->program, program);
  log->start_s = log->last_s = petra_clock_s();
  log->begun = petra_program_loss_epoch(log->program, program, program->microbatches - 1) + 1;
  if (log->begun < log->epochs)
    log->begun = log->epochs;
  petra_progress_init(&log->progress, stderr, options->progress);
  PETRA_TRY(petra_allocate(&log->states, (size_t)log->begun, sizeof *log->states));
  PETRA_TRY(petra_allocate(&log->recalibrated, (size_t)log->begun, sizeof *log->recalibrated));
  for (int64_t e = 0; e < log->begun; e++)
    log->recalibrated[e] = (petra_scores){NAN, NAN, NAN};
  PETRA_TRY(petra_allocate(&log->rows, (size_t)log->begun, sizeof *log->rows));
  *out = petra_take(&log);
  return PETRA_OK;
}

void petra_training_log_destroy(petra_training_log *log) {
  if (!log)
    return;
  PETRA_FREE_ALL(log->rows, log->recalibrated, log->states, log);
}

petra_stage_observer *petra_training_log_observer(petra_training_log *log) {
  return &log->base;
}

const petra_run_h5_epoch *petra_training_log_epochs(const petra_training_log *log, int64_t *count) {
  *count = log->written;
  return log->rows;
}

petra_weights_moment petra_best_of(const petra_run_h5_epoch *rows, int64_t count, petra_sample_kind samples) {
  const bool by_loss = petra_weights_by_loss(samples);
  petra_weights_moment best = {0};
  for (int64_t e = 0; e < count; e++) {
    const petra_weights_moment moment = {
        .epoch = rows[e].epoch + 1, .by_loss = by_loss, .value = by_loss ? rows[e].eval_loss : rows[e].eval_top1};
    if (!isnan(moment.value) && petra_weights_moment_beats(&moment, &best))
      best = moment;
  }
  return best;
}

double petra_training_log_mean_loss(const petra_training_log *log, int64_t *microbatches) {
  *microbatches = log->microbatches;
  return log->labels ? log->loss_sum / (double)log->labels : NAN;
}

enum {
  STATE_VALUES = sizeof(epoch_state) / sizeof(double),
  ROW_VALUES = 8,
  SCORE_VALUES = sizeof(petra_scores) / sizeof(double)
};

static void pack_row(const petra_run_h5_epoch *r, double *v) {
  const double values[ROW_VALUES] = {r->train_loss, r->train_top1, r->eval_loss, r->eval_top1,
                                     r->eval_top5,  r->lr,         r->wall_s,    r->rate};
  memcpy(v, values, sizeof values);
}

static void unpack_row(const double *v, int64_t epoch, petra_run_h5_epoch *r) {
  *r = (petra_run_h5_epoch){(int32_t)epoch, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], NAN, NAN, NAN};
}

/* Reads or writes the states of the first `epochs` epochs and the rows that were written for them; a resumed run may
 * have more epochs. */
static petra_status archive_epochs(petra_training_log *log, petra_archive *archive, int64_t epochs) {
  PETRA_FREED double *values = NULL;
  PETRA_TRY(petra_allocate(&values, (size_t)epochs, (STATE_VALUES + ROW_VALUES) * sizeof *values));
  double *rows = values + epochs * STATE_VALUES;
  memcpy(values, log->states, (size_t)epochs * sizeof *log->states);
  for (int64_t e = 0; e < epochs; e++)
    pack_row(&log->rows[e], rows + e * ROW_VALUES);
  PETRA_TRY(petra_archive_reals(archive, "epochs", values, epochs * (STATE_VALUES + ROW_VALUES)));
  if (log->options.plan->config->data.recalibrate > 0)
    PETRA_TRY(petra_archive_reals(archive, "recalibrated", &log->recalibrated->loss, epochs * SCORE_VALUES));
  memcpy(log->states, values, (size_t)epochs * sizeof *log->states);
  for (int64_t e = 0; e < epochs && archive->reading; e++) {
    double labels = log->states[e].labels, evaluated = log->states[e].eval_labels;
    if (!(labels >= 0 && labels < 1e18 && evaluated >= 0 && evaluated < 1e18))
      PETRA_TRY(petra_archive_refuse(archive, "epochs", "epoch %lld has %g and %g labels", (long long)e + 1, labels,
                                     evaluated));
    unpack_row(rows + e * ROW_VALUES, e, &log->rows[e]);
    put_recalibrated(&log->rows[e], &log->recalibrated[e]);
  }
  return PETRA_OK;
}

petra_status petra_training_log_archive(petra_training_log *log, petra_archive *archive) {
  double now = petra_clock_s();
  double reals[3] = {log->loss_sum, now - log->start_s, training_clock_s(log) - log->last_s};
  int64_t counts[4] = {log->written, log->microbatches, log->labels, log->written};
  /* Counts the states that contain anything. */
  for (int64_t e = log->written; e < log->begun; e++)
    if (log->states[e].labels > 0 || log->states[e].evaluated != 0 || log->states[e].complete != 0)
      counts[3] = e + 1;
  PETRA_TRY(petra_archive_enter(archive, "training_log"));
  petra_status status;
  PETRA_TRY_GOTO(status, petra_archive_integers(archive, "counts", counts, 4), done);
  PETRA_TRY_GOTO(status, petra_archive_reals(archive, "sums", reals, 3), done);
  const struct {
    const char *what;
    int64_t value, maximum;
  } checks[] = {{"epochs begun", counts[3], log->begun},
                {"epochs complete", counts[0], counts[3] < log->epochs ? counts[3] : log->epochs},
                {"losses", counts[1], log->expected},
                {"images", counts[2], INT64_MAX}};
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
    PETRA_TRY_GOTO(
        status, petra_archive_within(archive, "counts", checks[i].what, checks[i].value, 0, checks[i].maximum), done);
  if (counts[3] > 0)
    PETRA_TRY_GOTO(status, archive_epochs(log, archive, counts[3]), done);
  if (archive->reading) {
    log->written = counts[0];
    log->microbatches = counts[1];
    log->labels = counts[2];
    log->loss_sum = reals[0];
    log->start_s = now - reals[1];
    log->last_s = now - reals[2];
  }
done:
  return petra_archive_leave(archive, status);
}

petra_status petra_training_log_archived(petra_archive *archive, int64_t *epochs) {
  int64_t counts[4] = {0};
  PETRA_TRY(petra_archive_enter(archive, "training_log"));
  const petra_status status = petra_archive_leave(archive, petra_archive_integers(archive, "counts", counts, 4));
  *epochs = counts[0];
  return status;
}

void petra_training_log_finish(petra_training_log *log, bool succeeded) {
  if (succeeded)
    petra_progress_finish(&log->progress);
  else
    petra_progress_hide(&log->progress);
}
