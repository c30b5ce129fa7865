#include "exec/worker_stage.h"

#include "backend/ops.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/images.h"
#include "exec/worker_stage_private.h"
#include "schedule/mitigation.h"

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

static petra_account *account_of(const petra_worker_stage *worker, int32_t stage) {
  return petra_stage_account(worker->options.stage[stage - 1]);
}

/* Puts a message into a stage's box and counts its tensors there from now on. */
static petra_status post(petra_worker_stage *worker, petra_mailbox *box, int32_t stage, int64_t microbatch,
                         petra_message *message) {
  petra_streams_charge(&message->streams, account_of(worker, stage), PETRA_MEMORY_MESSAGES);
  petra_streams_charge(&message->gradients, account_of(worker, stage), PETRA_MEMORY_MESSAGES);
  return petra_mailbox_put(box, microbatch, message);
}

/* Reads microbatch `m` of the training data: the images become stage 1's message, the labels wait for the last
 * stage. */
static petra_status read_batch(petra_worker_stage *worker, int64_t m, petra_message *out) {
  const petra_worker_stage_options *options = &worker->options;
  petra_batch *batch;
  petra_status status;
  petra_tensor *images = NULL;
  PETRA_TRY(petra_loader_next(options->loader, &batch));
  const int32_t shape[4] = {batch->count, 3, options->image_height, options->image_width};
  if (batch->microbatch != m) {
    status = petra_fail(PETRA_INTERNAL, "microbatch %lld was read where %lld was due", (long long)batch->microbatch,
                        (long long)m);
    goto done;
  }
  PETRA_TRY_GOTO(status,
                 petra_tensor_create(options->backend, PETRA_TENSOR_ACTIVATION, shape, account_of(worker, 1),
                                     PETRA_MEMORY_MESSAGES, &images),
                 done);
  PETRA_TRY_GOTO(status, petra_images_upload(options->backend, batch, images), done);
  PETRA_TRY_GOTO(status, petra_labels_put(&worker->labels, m, batch->labels, batch->count), done);
  PETRA_TRY_GOTO(status, petra_probe_read(options->probe, m, images, batch->labels, batch->count), done);
  *out = (petra_message){{{petra_tensor_retain(images), NULL}}, {{NULL, NULL}}};
  worker->read++;
done:
  petra_tensor_release(&images);
  petra_loader_give_back(options->loader, batch);
  return status;
}

/* The forward input of a stage. */
static petra_status take_forward(petra_worker_stage *worker, int32_t stage, int64_t m, petra_message *out) {
  if (stage == 1)
    return read_batch(worker, m, out);
  PETRA_TRY(petra_mailbox_take(&worker->forward[stage - 1], m, out));
  petra_status status = petra_probe_input(worker->options.probe, stage, m, &out->streams);
  if (status != PETRA_OK)
    petra_message_release(out);
  return status;
}

static petra_status do_forward_loss(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns);

static petra_status do_forward(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns) {
  petra_message in, out;
  if (stage == worker->options.stages)
    return do_forward_loss(worker, stage, m, virtual_ns);
  PETRA_TRY(take_forward(worker, stage, m, &in));
  petra_status status = petra_stage_forward(worker->options.stage[stage - 1], m, &in, &out);
  petra_message_release(&in);
  PETRA_TRY(status);
  return post(worker, &worker->forward[stage], stage + 1, m, &out);
}

static petra_status tell_loss(petra_worker_stage *worker, int64_t m, const petra_loss *loss, int64_t virtual_ns) {
  const petra_worker_stage_options *options = &worker->options;
  double lr = petra_lr_at(options->lr, options->program->rate_index(options->program_options, options->stages, m));
  if (!isfinite(loss->loss))
    return petra_fail(PETRA_NOT_FINITE,
                      "microbatch %lld (epoch %lld): the loss is %s with learning rate %g; the run has diverged: "
                      "expected a finite loss, try a smaller optim.lr",
                      (long long)m, (long long)(m / options->program_options->batches),
                      isnan(loss->loss) ? "not a number" : "infinite", lr);
  return options->events.loss ? options->events.loss(options->events.context, m, loss, lr, virtual_ns) : PETRA_OK;
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
  petra_status status = petra_labels_find(&worker->labels, m, &row);
  if (status == PETRA_OK)
    status = petra_stage_loss(worker->options.stage[stage - 1], m, &in, row->labels, out, &loss);
  petra_message_release(&in);
  PETRA_TRY(status);
  petra_labels_drop(&worker->labels, m);
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
  petra_status status = petra_labels_find(&worker->labels, m, &row);
  if (status == PETRA_OK)
    status = petra_stage_forward_loss(worker->options.stage[stage - 1], m, &in, row->labels, &loss);
  petra_message_release(&in);
  PETRA_TRY(status);
  petra_labels_drop(&worker->labels, m);
  return report_loss(worker, m, &loss, virtual_ns);
}

static petra_status do_backward(petra_worker_stage *worker, int32_t stage, int64_t m, int64_t virtual_ns) {
  petra_message in = {{{NULL, NULL}}, {{NULL, NULL}}}, out;
  bool last = stage == worker->options.stages;
  if (last && !worker->options.program_options->split_head) {
    PETRA_TRY(do_loss(worker, stage, m, virtual_ns, &out));
  } else {
    if (!last)
      PETRA_TRY(petra_mailbox_take(&worker->backward[stage - 1], m, &in));
    petra_status status = petra_stage_backward(worker->options.stage[stage - 1], m, &in, &out);
    petra_message_release(&in);
    PETRA_TRY(status);
    status = petra_probe_reconstructed(worker->options.probe, stage, m, &out.streams);
    if (status != PETRA_OK)
      petra_message_release(&out);
    PETRA_TRY(status);
  }
  if (stage > 1)
    return post(worker, &worker->backward[stage - 2], stage - 1, m, &out);
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
    PETRA_TRY(petra_allocate(&evaluation->snapshots, (size_t)worker->options.stages, sizeof *evaluation->snapshots));
  }
  *out = link;
  return PETRA_OK;
}

/* Takes the stage's snapshot; the last stage to come has the evaluation computed. */
static petra_status do_evaluate(petra_worker_stage *worker, int32_t stage, int64_t m) {
  const petra_worker_stage_options *options = &worker->options;
  petra_pending **link;
  petra_evaluation result;
  PETRA_TRY(tell_late_loss(worker));
  PETRA_TRY(petra_worker_find_pending(worker, m, &link));
  petra_pending *evaluation = *link;
  PETRA_TRY(petra_stage_snapshot(options->stage[stage - 1], &evaluation->snapshots[stage - 1]));
  if (++evaluation->reached < options->stages)
    return PETRA_OK;
  petra_status status = petra_evaluate(options->backend, options->stage, evaluation->snapshots, options->stages,
                                       options->evaluation, &options->evaluation_loader, &result);
  *link = evaluation->next;
  destroy_pending(evaluation, options->stages);
  PETRA_TRY(status);
  return options->events.evaluation ? options->events.evaluation(options->events.context, m, &result) : PETRA_OK;
}

static petra_status perform_one(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *action,
                                petra_action_result *result) {
  petra_stage *stage = worker->options.stage[action->stage - 1];
  const petra_program_options *options = worker->options.program_options;
  *result = (petra_action_result){petra_stage_version(stage), -1, 0};
  switch (action->kind) {
  case PETRA_ACTION_FORWARD:
    PETRA_TRY(do_forward(worker, action->stage, action->microbatch, virtual_ns));
    result->version_read = petra_stage_version_read(stage);
    return petra_probe_forward(worker->options.probe, action->stage, action->microbatch);
  case PETRA_ACTION_BACKWARD:
    PETRA_TRY(do_backward(worker, action->stage, action->microbatch, virtual_ns));
    result->version_read = petra_stage_version_read(stage);
    return action->stage == options->stages && !options->split_head
               ? petra_probe_forward(worker->options.probe, action->stage, action->microbatch)
               : PETRA_OK;
  case PETRA_ACTION_UPDATE: {
    int64_t index = worker->options.program->rate_index(options, action->stage, action->microbatch);
    PETRA_TRY(petra_probe_update(worker->options.probe, action->stage, action->microbatch));
    PETRA_TRY(petra_stage_update(stage, petra_lr_at(worker->options.lr, index)));
    result->version_written = petra_stage_version(stage);
    return PETRA_OK;
  }
  case PETRA_ACTION_WEIGHT_GRADIENT:
    return petra_stage_weight_gradient(stage, action->microbatch);
  case PETRA_ACTION_EVALUATE:
    return do_evaluate(worker, action->stage, action->microbatch);
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
  PETRA_TRY(petra_probe_before(worker->options.probe, actions, count));
  for (int i = 0; i < count; i++)
    PETRA_TRY(perform_measured(worker, virtual_ns, &actions[i], &results[i]));
  return petra_probe_after(worker->options.probe);
}

static petra_status finish(petra_worker *base) {
  return tell_late_loss((petra_worker_stage *)base);
}

petra_status petra_worker_stage_create(const petra_worker_stage_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  petra_worker_stage *worker;
  petra_status status;
  size_t stages = (size_t)options->stages;
  PETRA_TRY(petra_allocate(&worker, 1, sizeof *worker));
  worker->base.ops = &ops;
  worker->options = *options;
  PETRA_TRY_GOTO(status, petra_allocate(&worker->forward, stages, sizeof *worker->forward), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&worker->backward, stages, sizeof *worker->backward), fail);
  *out = &worker->base;
  return PETRA_OK;
fail:
  petra_worker_stage_destroy(&worker->base);
  return status;
}

void petra_worker_stage_destroy(petra_worker *base) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  if (!worker)
    return;
  for (int32_t j = 0; j < worker->options.stages; j++) {
    if (worker->forward)
      petra_mailbox_fini(&worker->forward[j]);
    if (worker->backward)
      petra_mailbox_fini(&worker->backward[j]);
  }
  petra_labels_fini(&worker->labels);
  while (worker->evaluations) {
    petra_pending *evaluation = worker->evaluations;
    worker->evaluations = evaluation->next;
    destroy_pending(evaluation, worker->options.stages);
  }
  petra_free(worker->backward);
  petra_free(worker->forward);
  petra_free(worker);
}
