#include "exec/worker_stage.h"

#include "backend/ops.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/worker_stage_private.h"
#include "stage/probe.h"

#include <math.h>

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

/* Microbatch `m` of the training data as stage 1's message. */
static petra_status read_batch(petra_worker_stage *worker, int64_t m, petra_message *out) {
  petra_batch *batch;
  petra_tensor *input;
  PETRA_TRY(petra_feed_input(&worker->feed, m, petra_stage_account(stage_of(worker, 1)), &input, &batch));
  petra_status status = tell_read(worker, m, input, batch);
  petra_loader_give_back(worker->feed.loader, batch);
  if (status != PETRA_OK)
    petra_tensor_release(&input);
  else
    *out = (petra_message){{{input, NULL}}, {{NULL, NULL}}};
  return status;
}

static petra_status tell_input(const petra_worker_stage *worker, int32_t stage, int64_t m, const petra_streams *in) {
  PETRA_TELL(petra_stage_observer, worker->options.observers, input, observer, stage, m, in);
  return PETRA_OK;
}

/* The forward input of a stage. */
static petra_status take_forward(petra_worker_stage *worker, int32_t stage, int64_t m, petra_message *out) {
  if (stage == 1)
    return read_batch(worker, m, out);
  PETRA_TRY(take(worker, stage, PETRA_CHANNEL_FORWARD, m, out));
  petra_status status = tell_input(worker, stage, m, &out->streams);
  if (status != PETRA_OK)
    petra_message_release(out);
  return status;
}

static petra_status do_forward_loss(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns);

static petra_status do_forward(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns) {
  petra_message in, out;
  if (is_last(worker, stage))
    return do_forward_loss(worker, stage, m, virtual_ns);
  PETRA_TRY(take_forward(worker, stage, m, &in));
  petra_status status = petra_stage_forward(stage_of(worker, stage), m, &in, &out);
  petra_message_release(&in);
  PETRA_TRY(status);
  return post(worker, stage + 1, PETRA_CHANNEL_FORWARD, m, &out);
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

static petra_status do_loss(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns,
                            petra_message *out) {
  petra_message in;
  petra_loss loss;
  PETRA_TRY(take_forward(worker, stage, m, &in));
  const petra_label_row *row;
  petra_status status = petra_feed_labels(&worker->feed, m, &row);
  if (status == PETRA_OK)
    status = petra_stage_loss(stage_of(worker, stage), m, &in, row->labels, out, &loss);
  petra_message_release(&in);
  PETRA_TRY(status);
  petra_feed_drop_labels(&worker->feed, m);
  status = report_loss(worker, m, &loss, virtual_ns);
  if (status != PETRA_OK)
    petra_message_release(out);
  return status;
}

/* F of a split head. */
static petra_status do_forward_loss(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns) {
  petra_message in;
  petra_loss loss;
  const petra_label_row *row;
  PETRA_TRY(take_forward(worker, stage, m, &in));
  petra_status status = petra_feed_labels(&worker->feed, m, &row);
  if (status == PETRA_OK)
    status = petra_stage_forward_loss(stage_of(worker, stage), m, &in, row->labels, row->count, &loss);
  petra_message_release(&in);
  PETRA_TRY(status);
  petra_feed_drop_labels(&worker->feed, m);
  return report_loss(worker, m, &loss, virtual_ns);
}

static petra_status tell_reconstructed(const petra_worker_stage *worker, int32_t stage, int64_t m,
                                       const petra_streams *found) {
  PETRA_TELL(petra_stage_observer, worker->options.observers, reconstructed, observer, stage, m, found);
  return PETRA_OK;
}

static petra_status do_backward(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns) {
  petra_message in = {{{NULL, NULL}}, {{NULL, NULL}}}, out;
  bool last = is_last(worker, stage);
  if (petra_program_fused(worker->options.program_options, stage)) {
    PETRA_TRY(do_loss(worker, stage, m, virtual_ns, &out));
  } else {
    if (!last)
      PETRA_TRY(take(worker, stage, PETRA_CHANNEL_BACKWARD, m, &in));
    petra_status status = petra_stage_backward(stage_of(worker, stage), m, &in, &out);
    petra_message_release(&in);
    PETRA_TRY(status);
    status = tell_reconstructed(worker, stage, m, &out.streams);
    if (status != PETRA_OK)
      petra_message_release(&out);
    PETRA_TRY(status);
  }
  if (stage > 1)
    return post(worker, stage - 1, PETRA_CHANNEL_BACKWARD, m, &out);
  petra_message_release(&out);
  return PETRA_OK;
}

static void destroy_pending(petra_pending *evaluation, int32_t stages) {
  for (int32_t j = 0; evaluation->snapshots && j < stages; j++)
    petra_snapshot_destroy(evaluation->snapshots[j]);
  petra_free(evaluation->snapshots);
  petra_free(evaluation);
}

petra_status petra_worker_find_pending(petra_worker_stage *worker, int64_t m, petra_pending ***out) {
  petra_pending **link = &worker->evaluations;
  while (*link && (*link)->microbatch != m)
    link = &(*link)->next;
  if (!*link) {
    petra_pending *evaluation;
    PETRA_TRY(petra_allocate(&evaluation, 1, sizeof *evaluation));
    evaluation->microbatch = m;
    *link = evaluation;
    PETRA_TRY(petra_allocate(&evaluation->snapshots, (size_t)petra_stages_here(&worker->options.stages),
                             sizeof *evaluation->snapshots));
  }
  *out = link;
  return PETRA_OK;
}

/* Takes the stage's snapshot; the last stage here to come has the evaluation computed. */
static petra_status do_evaluate(petra_worker_stage *worker, int32_t stage, int64_t m) {
  const petra_worker_stage_options *options = &worker->options;
  const int32_t here = petra_stages_here(&options->stages);
  petra_pending **link;
  petra_evaluation result;
  PETRA_TRY(tell_late_loss(worker));
  PETRA_TRY(petra_worker_find_pending(worker, m, &link));
  petra_pending *evaluation = *link;
  PETRA_TRY(petra_stage_snapshot(stage_of(worker, stage), &evaluation->snapshots[stage - options->stages.first]));
  if (++evaluation->reached < here)
    return PETRA_OK;
  petra_status status = petra_evaluate(options->backend, &options->stages, evaluation->snapshots, options->transport,
                                       options->evaluation, &options->evaluation_loader, &result);
  *link = evaluation->next;
  destroy_pending(evaluation, here);
  PETRA_TRY(status);
  if (options->stages.last == options->stages.count)
    PETRA_TELL(petra_stage_observer, options->observers, evaluated, observer, m, &result);
  return PETRA_OK;
}

/* The stage has done F of a microbatch, also within a fused action. */
static petra_status tell_forwarded(const petra_worker_stage *worker, int32_t stage, int64_t m) {
  PETRA_TELL(petra_stage_observer, worker->options.observers, forwarded, observer, stage, m);
  return PETRA_OK;
}

static petra_status do_update(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t *version) {
  const petra_worker_stage_options *options = &worker->options;
  int64_t index = petra_program_rate_index(options->program, options->program_options, stage, m);
  PETRA_TELL(petra_stage_observer, options->observers, updating, observer, stage, m);
  PETRA_TRY(petra_stage_update(stage_of(worker, stage), petra_lr_at(options->lr, index)));
  *version = petra_stage_version(stage_of(worker, stage));
  return PETRA_OK;
}

static petra_status perform_one(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *action,
                                petra_action_result *result) {
  petra_stage *stage = stage_of(worker, action->stage);
  const int64_t m = action->microbatch;
  *result = (petra_action_result){petra_stage_version(stage), -1, 0};
  switch (action->kind) {
  case PETRA_ACTION_FORWARD:
    PETRA_TRY(do_forward(worker, action->stage, m, virtual_ns));
    result->version_read = petra_stage_version_read(stage);
    return tell_forwarded(worker, action->stage, m);
  case PETRA_ACTION_BACKWARD:
    PETRA_TRY(do_backward(worker, action->stage, m, virtual_ns));
    result->version_read = petra_stage_version_read(stage);
    return petra_program_fused(worker->options.program_options, action->stage)
               ? tell_forwarded(worker, action->stage, m)
               : PETRA_OK;
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
  worker->feed = (petra_feed){.backend = options->backend,
                              .loader = options->loader,
                              .classes = petra_stage_model(options->stages.stage[0])->classes,
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
    destroy_pending(evaluation, petra_stages_here(&worker->options.stages));
  }
  petra_free(worker);
}
