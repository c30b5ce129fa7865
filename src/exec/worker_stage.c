#include "exec/worker_stage.h"

#include "backend/ops.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/feed.h"
#include "stage/archive.h"
#include "stage/probe.h"

#include <math.h>
#include <stdio.h>

/* An evaluation that waits until every stage of the network has reached it. */
typedef struct petra_pending {
  int64_t microbatch;
  int32_t reached;
  petra_evaluator *evaluator; /* of batches between actions (options.waves): once it began */
  struct petra_pending *next;
  petra_snapshot *snapshots[]; /* per stage; NULL: elsewhere, or not there yet */
} petra_pending;

/* A loss that was not told yet; images 0: none. It is told with the next one, so that the host prepares a microbatch
 * while the device computes another. */
typedef struct petra_late_loss {
  petra_loss loss;
  int64_t microbatch, virtual_ns;
} petra_late_loss;

typedef struct petra_worker_stage {
  petra_worker base;
  petra_worker_stage_options options;
  petra_feed feed;
  petra_pending *evaluations;
  petra_late_loss late, new_late; /* the last loss, where the device may still be at it; that of the present action */
} petra_worker_stage;

petra_stage_rule petra_method_stage_rule(const petra_method *method, bool inverts) {
  return (petra_stage_rule){.forward_weights = method->forward_weights,
                            .backward_weights = method->backward_weights,
                            .invert_weights = method->invert_weights,
                            .keep = method->keep,
                            .invert = inverts,
                            .split_backward = method->program->split_backward,
                            .accumulate = (int)method->accumulate,
                            .sync_period = method->sync_period};
}

petra_stage_mitigation petra_method_stage_mitigation(const petra_method *method, int32_t stages, int32_t stage) {
  petra_stage_mitigation mitigation = {.choice = method->mitigation, .distance = stages - stage, .stages = stages};
  if (petra_mitigation_key(&method->mitigation))
    mitigation.delay = petra_method_delay(method, stages, stage);
  return mitigation;
}

static petra_stage *stage_of(const petra_worker_stage *worker, int32_t stage) {
  return petra_stages_get(&worker->options.stages, stage);
}

static bool is_last(const petra_worker_stage *worker, int32_t stage) {
  return stage == worker->options.stages.count;
}

static petra_status post(petra_worker_stage *worker, int32_t stage, petra_channel channel, int64_t microbatch,
                         petra_message *message) {
  const petra_address to = {stage, channel, microbatch};
  return worker->options.transport->ops->post(worker->options.transport, &to, message);
}

static petra_status take(petra_worker_stage *worker, int32_t stage, petra_channel channel, int64_t microbatch,
                         petra_message *out) {
  const petra_address at = {stage, channel, microbatch};
  return worker->options.transport->ops->take(worker->options.transport, &at, out);
}

static petra_status tell_read(const petra_worker_stage *worker, int64_t m, const petra_tensor *input,
                              const petra_batch *batch) {
  PETRA_TELL(petra_stage_observer, worker->options.observers, read, observer, m, input, batch->labels,
             batch->label_count);
  return PETRA_OK;
}

/* The forward input of a stage; stage 1 reads it from the training data. The caller releases it, after a failure too. */
static petra_status take_forward(petra_worker_stage *worker, int32_t stage, int64_t m, petra_message *out) {
  petra_batch *batch;
  if (stage == 1) {
    PETRA_TRY(
        petra_feed_input(&worker->feed, m, petra_stage_account(stage_of(worker, 1)), &out->streams.tensor[0], &batch));
    petra_status status = tell_read(worker, m, out->streams.tensor[0], batch);
    petra_loader_give_back(worker->feed.loader, batch);
    return status;
  }
  PETRA_TRY(take(worker, stage, PETRA_CHANNEL_FORWARD, m, out));
  PETRA_TELL(petra_stage_observer, worker->options.observers, input, observer, stage, m, &out->streams);
  return PETRA_OK;
}

static petra_status tell_loss(petra_worker_stage *worker, int64_t m, const petra_loss *loss, int64_t virtual_ns) {
  const petra_worker_stage_options *options = &worker->options;
  double lr = petra_lr_at(
      options->lr, petra_program_rate_index(options->program, options->program_options, options->stages.count, m));
  if (!isfinite(loss->loss))
    return petra_fail(PETRA_NOT_FINITE,
                      "microbatch %lld (epoch %lld): the loss is %s with learning rate %g; the run has diverged: "
                      "expected a finite loss, try a smaller optim.lr",
                      (long long)m, (long long)(m / options->program_options->batches),
                      isnan(loss->loss) ? "not a number" : "infinite", lr);
  PETRA_TELL(petra_stage_observer, options->observers, loss, observer, m, loss, lr, virtual_ns);
  return PETRA_OK;
}

/* Tells the loss that waits, if one does. */
static petra_status tell_late_loss(petra_worker_stage *worker) {
  petra_late_loss late = worker->late;
  petra_cross_entropy found;
  worker->late.loss.images = 0;
  if (late.loss.images == 0)
    return PETRA_OK;
  PETRA_TRY(petra_backend_collect(worker->options.backend, late.loss.ticket, &found));
  late.loss = (petra_loss){.loss = found.loss, .top1 = found.top1, .top5 = found.top5, .images = late.loss.images};
  return tell_loss(worker, late.microbatch, &late.loss, late.virtual_ns);
}

static petra_status report_loss(petra_worker_stage *worker, int64_t m, const petra_loss *loss, int64_t virtual_ns) {
  if (loss->ticket) {
    worker->new_late = (petra_late_loss){*loss, m, virtual_ns};
    return PETRA_OK;
  }
  PETRA_TRY(tell_late_loss(worker));
  return tell_loss(worker, m, loss, virtual_ns);
}

/* After an action, when its work is with the device: only now the loss before is waited for. */
static petra_status put_off_loss(petra_worker_stage *worker) {
  if (worker->new_late.loss.images == 0)
    return PETRA_OK;
  PETRA_TRY(tell_late_loss(worker));
  worker->late = worker->new_late;
  worker->new_late.loss.images = 0;
  return PETRA_OK;
}

/* The last stage's F with the loss; where `out` is not NULL, B too, in the same action: it holds nothing before, and the
 * caller releases it, after a failure too. */
static petra_status do_loss(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns,
                            petra_message *out) {
  petra_message in = {0};
  petra_loss loss;
  const petra_label_row *row;
  petra_status status;
  PETRA_TRY_GOTO(status, take_forward(worker, stage, m, &in), done);
  PETRA_TRY_GOTO(status, petra_feed_labels(&worker->feed, m, &row), done);
  status = out ? petra_stage_loss(stage_of(worker, stage), m, &in, row->labels, out, &loss)
               : petra_stage_forward_loss(stage_of(worker, stage), m, &in, row->labels, row->count, &loss);
done:
  petra_message_release(&in);
  PETRA_TRY(status);
  petra_feed_drop_labels(&worker->feed, m);
  return report_loss(worker, m, &loss, virtual_ns);
}

static petra_status do_forward(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns) {
  petra_message in = {0}, out;
  if (is_last(worker, stage))
    return do_loss(worker, stage, m, virtual_ns, NULL);
  petra_status status = take_forward(worker, stage, m, &in);
  if (status == PETRA_OK)
    status = petra_stage_forward(stage_of(worker, stage), m, &in, &out);
  petra_message_release(&in);
  PETRA_TRY(status);
  return post(worker, stage + 1, PETRA_CHANNEL_FORWARD, m, &out);
}

/* B as an action of its own. `out` holds nothing before; the caller releases it, after a failure too. */
static petra_status do_own_backward(petra_worker_stage *worker, int32_t stage, int64_t m, petra_message *out) {
  petra_message in = {0};
  if (!is_last(worker, stage))
    PETRA_TRY(take(worker, stage, PETRA_CHANNEL_BACKWARD, m, &in));
  petra_status status = petra_stage_backward(stage_of(worker, stage), m, &in, out);
  petra_message_release(&in);
  PETRA_TRY(status);
  PETRA_TELL(petra_stage_observer, worker->options.observers, reconstructed, observer, stage, m, &out->streams);
  return PETRA_OK;
}

static petra_status do_backward(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns) {
  petra_message out = {0};
  petra_status status = petra_program_fused(worker->options.program_options, stage)
                            ? do_loss(worker, stage, m, virtual_ns, &out)
                            : do_own_backward(worker, stage, m, &out);
  if (status == PETRA_OK && stage > 1)
    return post(worker, stage - 1, PETRA_CHANNEL_BACKWARD, m, &out);
  petra_message_release(&out);
  return status;
}

static void destroy_pending(petra_pending *evaluation, int32_t stages) {
  for (int32_t j = 0; j < stages; j++)
    petra_snapshot_destroy(evaluation->snapshots[j]);
  petra_evaluator_destroy(evaluation->evaluator);
  petra_free(evaluation);
}

/* The place of the evaluation at a microbatch, made where it is missing. */
static petra_status find_pending(petra_worker_stage *worker, int64_t m, petra_pending ***out) {
  petra_pending **link = &worker->evaluations;
  while (*link && (*link)->microbatch != m)
    link = &(*link)->next;
  if (!*link) {
    const size_t bytes = (size_t)worker->options.stages.count * sizeof(petra_snapshot *);
    PETRA_TRY(petra_allocate(link, 1, sizeof **link + bytes));
    (*link)->microbatch = m;
  }
  *out = link;
  return PETRA_OK;
}

/* What `link` leads to is over. */
static void drop_evaluation(petra_worker_stage *worker, petra_pending **link) {
  petra_pending *evaluation = *link;
  *link = evaluation->next;
  destroy_pending(evaluation, worker->options.stages.count);
}

/* The evaluation that came first is over. */
static petra_status end_evaluation(petra_worker_stage *worker, petra_pending **link, petra_status status,
                                   const petra_evaluation *result) {
  const petra_worker_stage_options *options = &worker->options;
  const int64_t m = (*link)->microbatch;
  drop_evaluation(worker, link);
  PETRA_TRY(status);
  if (petra_stages_has(&options->stages, options->stages.count))
    PETRA_TELL(petra_stage_observer, options->observers, evaluated, observer, m, result);
  return PETRA_OK;
}

/* Takes the stage's snapshot, where it is here; the last of all stages to come has the evaluation computed, by every process
 * at once: in the order of the schedule nobody then waits for a stage that has not come so far. */
static petra_status do_evaluate(petra_worker_stage *worker, int32_t stage, int64_t m) {
  const petra_worker_stage_options *options = &worker->options;
  petra_pending **link;
  petra_evaluation result;
  PETRA_TRY(tell_late_loss(worker));
  PETRA_TRY(find_pending(worker, m, &link));
  petra_pending *evaluation = *link;
  if (petra_stages_has(&options->stages, stage) && options->evaluation)
    PETRA_TRY(petra_stage_snapshot(stage_of(worker, stage), &evaluation->snapshots[stage - 1]));
  if (++evaluation->reached < options->stages.count || options->waves)
    return PETRA_OK;
  if (!options->evaluation) {
    drop_evaluation(worker, link);
    return PETRA_OK;
  }
  petra_status status = petra_evaluate(options->backend, &options->stages, evaluation->snapshots, options->transport,
                                       options->evaluation, &options->evaluation_loader, &result);
  return end_evaluation(worker, link, status, &result);
}

/* The first one has the snapshots of all stages that are here. */
bool petra_worker_stage_evaluates(const petra_worker *base) {
  const petra_worker_stage *worker = (const petra_worker_stage *)base;
  return worker->evaluations && worker->evaluations->reached == petra_stages_here(&worker->options.stages);
}

petra_status petra_worker_stage_evaluate(petra_worker *base, bool *ended) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  const petra_worker_stage_options *options = &worker->options;
  petra_pending *evaluation = worker->evaluations;
  petra_evaluation result;
  if (!evaluation->evaluator)
    PETRA_TRY(petra_evaluator_create(options->backend, &options->stages, evaluation->snapshots, options->transport,
                                     options->evaluation, &options->evaluation_loader, &evaluation->evaluator));
  PETRA_TRY(petra_backend_begin(options->backend, petra_stages_first(&options->stages), PETRA_ACTION_EVALUATE));
  petra_status status = petra_evaluator_step(evaluation->evaluator), end = petra_backend_end(options->backend);
  PETRA_TRY(status != PETRA_OK ? status : end);
  *ended = petra_evaluator_ended(evaluation->evaluator);
  if (!*ended)
    return PETRA_OK;
  status = petra_evaluator_result(evaluation->evaluator, &result);
  return end_evaluation(worker, &worker->evaluations, status, &result);
}

static petra_status do_update(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t *version) {
  const petra_worker_stage_options *options = &worker->options;
  int64_t index = petra_program_rate_index(options->program, options->program_options, stage, m);
  PETRA_TELL(petra_stage_observer, options->observers, updating, observer, stage, m);
  PETRA_TRY(petra_stage_update(stage_of(worker, stage), petra_lr_at(options->lr, index)));
  *version = petra_stage_version(stage_of(worker, stage));
  return PETRA_OK;
}

/* F, B, or both in one action. */
static petra_status do_pass(petra_worker_stage *worker, const petra_action *action, int64_t virtual_ns,
                            petra_action_result *result) {
  const int32_t stage = action->stage;
  const bool forward = action->kind == PETRA_ACTION_FORWARD;
  PETRA_TRY(forward ? do_forward(worker, stage, action->microbatch, virtual_ns)
                    : do_backward(worker, stage, action->microbatch, virtual_ns));
  result->version_read = petra_stage_version_read(stage_of(worker, stage));
  if (forward || petra_program_fused(worker->options.program_options, stage))
    PETRA_TELL(petra_stage_observer, worker->options.observers, forwarded, observer, stage, action->microbatch);
  return PETRA_OK;
}

static petra_status perform_one(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *action,
                                petra_action_result *result) {
  petra_stage *stage = stage_of(worker, action->stage);
  const int64_t m = action->microbatch;
  if (!stage && action->kind == PETRA_ACTION_EVALUATE)
    return do_evaluate(worker, action->stage, m);
  if (!stage)
    return petra_fail(PETRA_INTERNAL, "an action of stage %d, which is not in this process", action->stage);
  *result = (petra_action_result){petra_stage_version(stage), -1, 0, 0};
  switch (action->kind) {
  case PETRA_ACTION_FORWARD:
  case PETRA_ACTION_BACKWARD:
    return do_pass(worker, action, virtual_ns, result);
  case PETRA_ACTION_UPDATE:
    return do_update(worker, action->stage, m, &result->version_written);
  case PETRA_ACTION_WEIGHT_GRADIENT:
    return petra_stage_weight_gradient(stage, m);
  case PETRA_ACTION_EVALUATE:
    return do_evaluate(worker, action->stage, m);
  case PETRA_ACTION_KINDS:
    break;
  }
  return PETRA_INTERNAL;
}

static petra_status perform_measured(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *action,
                                     petra_action_result *result) {
  petra_backend *backend = worker->options.backend;
  int64_t begin_ns = petra_clock_ns();
  PETRA_TRY(petra_backend_begin(backend, action->stage, (int32_t)action->kind));
  petra_status status = perform_one(worker, virtual_ns, action, result);
  petra_status end = petra_backend_end(backend);
  PETRA_TRY(status != PETRA_OK ? status : end);
  PETRA_TRY(put_off_loss(worker));
  if (worker->options.measure)
    PETRA_TRY(petra_backend_synchronize(backend));
  int64_t took_ns = petra_clock_ns() - begin_ns;
  if (worker->options.measure && action->kind != PETRA_ACTION_EVALUATE)
    result->measured_ns = took_ns > 0 ? took_ns : 1;
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  PETRA_TELL(petra_stage_observer, worker->options.observers, begins, observer, virtual_ns, actions, count);
  for (int i = 0; i < count; i++)
    PETRA_TRY(perform_measured(worker, virtual_ns, &actions[i], &results[i]));
  PETRA_TELL(petra_stage_observer, worker->options.observers, done, observer);
  return PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  return tell_late_loss((petra_worker_stage *)base);
}

petra_status petra_worker_stage_create(const petra_worker_stage_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  petra_worker_stage *worker;
  PETRA_TRY(petra_allocate(&worker, 1, sizeof *worker));
  worker->base.ops = &ops;
  worker->options = *options;
  worker->feed = (petra_feed){
      .backend = options->backend,
      .loader = options->loader,
      .classes = petra_stage_model(petra_stages_get(&options->stages, petra_stages_first(&options->stages)))->classes,
      .input = petra_stages_has(&options->stages, 1),
      .labels = petra_stages_has(&options->stages, options->stages.count)};
  *out = &worker->base;
  return PETRA_OK;
}

void petra_worker_stage_destroy(petra_worker *base) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  if (!worker)
    return;
  petra_feed_fini(&worker->feed);
  while (worker->evaluations) {
    petra_pending *evaluation = worker->evaluations;
    worker->evaluations = evaluation->next;
    destroy_pending(evaluation, worker->options.stages.count);
  }
  petra_free(worker);
}

/* --- checkpoints --- */

/* Evaluations that some stages have reached and others not. */
static petra_status archive_evaluations(petra_worker_stage *worker, petra_archive *archive) {
  petra_pending *evaluation = worker->evaluations;
  const int64_t microbatches = worker->options.program_options->microbatches;
  int64_t count = 0;
  for (petra_pending *e = evaluation; e; e = e->next)
    count++;
  PETRA_TRY(petra_archive_integer(archive, "evaluations/count", "evaluations", &count, 0, microbatches));
  for (int64_t i = 0; i < count; i++) {
    int64_t about[2] = {archive->reading ? 0 : evaluation->microbatch, archive->reading ? 0 : evaluation->reached};
    char name[64];
    snprintf(name, sizeof name, "evaluations/%lld", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    PETRA_TRY(petra_archive_within(archive, name, "microbatch", about[0], 0, microbatches - 1));
    PETRA_TRY(
        petra_archive_within(archive, name, "stages that reached it", about[1], 1, worker->options.stages.count - 1));
    if (archive->reading) {
      petra_pending **link;
      PETRA_TRY(find_pending(worker, about[0], &link));
      evaluation = *link;
      if (evaluation->reached > 0)
        return petra_archive_refuse(archive, name, "microbatch %lld is there twice", (long long)about[0]);
      evaluation->reached = (int32_t)about[1];
    }
    evaluation = evaluation->next;
  }
  return PETRA_OK;
}

petra_status petra_worker_stage_archive(petra_worker *base, petra_archive *archive, int64_t read) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  if (archive->reading)
    worker->feed.read = read;
  return archive_evaluations(worker, archive);
}

petra_status petra_worker_stage_archive_stage(petra_worker *base, int32_t stage, petra_tensor_archive *tensors) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  const petra_worker_stage_options *options = &worker->options;
  char name[64];
  PETRA_TRY(petra_stage_archive(stage_of(worker, stage), tensors));
  PETRA_TRY(options->transport->ops->archive(options->transport, stage, tensors));
  for (petra_pending *e = worker->evaluations; e && options->evaluation; e = e->next) {
    snprintf(name, sizeof name, "evaluation-%lld", (long long)e->microbatch);
    PETRA_TRY(petra_snapshot_archive(stage_of(worker, stage), tensors, name, &e->snapshots[stage - 1]));
  }
  return is_last(worker, stage) ? petra_feed_archive(&worker->feed, tensors) : PETRA_OK;
}

petra_status petra_worker_stage_archived(const petra_worker *base, const petra_archive *archive) {
  const petra_worker_stage *worker = (const petra_worker_stage *)base;
  const petra_stages *stages = &worker->options.stages;
  for (const petra_pending *e = worker->evaluations; e && worker->options.evaluation; e = e->next) {
    int32_t taken = 0;
    for (int32_t j = 0; j < stages->count; j++)
      taken += e->snapshots[j] != NULL;
    if (petra_stages_all(stages) ? e->reached != taken : e->reached < taken)
      return petra_archive_refuse(archive, "evaluations",
                                  "%d stages have reached the evaluation of microbatch %lld, %d of %d have a snapshot",
                                  e->reached, (long long)e->microbatch, taken, stages->count);
  }
  return PETRA_OK;
}
