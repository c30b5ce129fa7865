#include "cli/checkpoints.h"

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint.h"
#include "sim/worker_cost.h"

#include <string.h>
#include <unistd.h>

struct petra_checkpoints {
  petra_worker base;
  petra_checkpoints_options options;
  petra_worker *counting; /* does the actions up to the checkpoint once more */
  int64_t done;           /* actions given to us */
  int64_t resumed;        /* of these, those that the checkpoint has done */
  int64_t *measured;      /* of all actions done, where durations are measured; NULL: they are not */
  int64_t measured_capacity;
  int64_t written; /* microbatches that stage 1 had read at the last checkpoint */
};

enum { BEGIN_ACTIONS, BEGIN_READ, BEGIN_LOG_BYTES, BEGIN_COUNT };

static petra_status archive_all(petra_checkpoints *c, petra_archive *archive) {
  PETRA_TRY(petra_training_log_archive(c->options.log, archive));
  return petra_worker_stage_archive(c->options.worker, archive);
}

static petra_status fill(petra_checkpoints *c, petra_archive *archive) {
  char *log;
  size_t bytes;
  PETRA_TRY(petra_runlog_image(c->options.runlog, &log, &bytes));
  int64_t begin[BEGIN_COUNT] = {c->done, petra_worker_stage_read(c->options.worker), (int64_t)bytes};
  petra_status status = petra_archive_integers(archive, "begin", begin, BEGIN_COUNT);
  if (status == PETRA_OK)
    status = petra_archive_values(archive, "log", PETRA_ARCHIVE_U8, (int64_t)bytes, log);
  if (status == PETRA_OK && c->options.measure)
    status = petra_archive_integers(archive, "measured_ns", c->measured, c->done);
  petra_free(log);
  return status == PETRA_OK ? archive_all(c, archive) : status;
}

static petra_status write_checkpoint(petra_checkpoints *c) {
  petra_archive *archive;
  PETRA_TRY(petra_checkpoint_create(c->options.path, c->options.config, &archive));
  petra_status status = fill(c, archive);
  if (status == PETRA_OK)
    status = petra_checkpoint_write(archive);
  petra_checkpoint_destroy(archive);
  c->written = petra_worker_stage_read(c->options.worker);
  return status;
}

/* Whether stage 1 is about to read the first microbatch after a checkpoint is due. */
static bool is_due(const petra_checkpoints *c, const petra_action *actions, int count) {
  int64_t read = petra_worker_stage_read(c->options.worker);
  bool fused = c->options.program->stages == 1 && !c->options.program->split_head;
  if (c->options.every == 0 || read == 0 || read % c->options.every != 0 || read == c->written)
    return false;
  for (int i = 0; i < count; i++)
    if (actions[i].stage == 1 && actions[i].microbatch == read &&
        actions[i].kind == (fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD))
      return true;
  return false;
}

/* Durations that are measured cannot be found again: what was done before the checkpoint takes what it took then. */
static petra_status remember(petra_checkpoints *c, int count, petra_action_result *results) {
  PETRA_TRY(petra_array_reserve(&c->measured, &c->measured_capacity, c->done + count, sizeof *c->measured));
  for (int i = 0; i < count; i++) {
    if (c->done < c->resumed)
      results[i].measured_ns = c->measured[c->done + i];
    else
      c->measured[c->done + i] = results[i].measured_ns;
  }
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  petra_checkpoints *c = (petra_checkpoints *)base;
  petra_worker *worker = c->options.worker;
  if (c->done < c->resumed) {
    if (c->done + count > c->resumed)
      return petra_fail(
          PETRA_DATA,
          "%s: its %lld actions end in the middle of what starts together; expected a checkpoint of this run",
          c->options.path, (long long)c->resumed);
    worker = c->counting;
  } else if (is_due(c, actions, count)) {
    PETRA_TRY(petra_worker_finish(worker)); /* the log is in the checkpoint */
    PETRA_TRY(write_checkpoint(c));
  }
  PETRA_TRY(worker->ops->perform(worker, virtual_ns, actions, count, results));
  if (c->options.measure)
    PETRA_TRY(remember(c, count, results));
  c->done += count;
  return PETRA_OK;
}

static petra_status finish_inner(petra_worker *base) {
  return petra_worker_finish(((petra_checkpoints *)base)->options.worker);
}

static petra_status resume(petra_checkpoints *c) {
  const petra_method *method = &c->options.setup->method;
  const petra_worker_cost_options counting = {.stages = c->options.program->stages,
                                              .split_head = c->options.program->split_head,
                                              .split_backward = method->program->split_backward,
                                              .forward_weights = method->forward_weights,
                                              .backward_weights = method->backward_weights,
                                              .accumulate = method->accumulate,
                                              .sync_period = method->sync_period};
  int64_t begin[BEGIN_COUNT];
  PETRA_TRY(petra_worker_cost_create(&counting, &c->counting));
  PETRA_TRY(petra_archive_integers(c->options.resume, "begin", begin, BEGIN_COUNT));
  c->resumed = begin[BEGIN_ACTIONS];
  c->written = begin[BEGIN_READ];
  if (c->options.measure) {
    PETRA_TRY(petra_allocate(&c->measured, (size_t)c->resumed, sizeof *c->measured));
    c->measured_capacity = c->resumed;
    PETRA_TRY(petra_archive_integers(c->options.resume, "measured_ns", c->measured, c->resumed));
  }
  return archive_all(c, c->options.resume);
}

petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_checkpoints **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish_inner};
  petra_checkpoints *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  c->base.ops = &ops;
  c->options = *options;
  petra_status status = options->resume ? resume(c) : PETRA_OK;
  if (status != PETRA_OK)
    petra_checkpoints_destroy(c);
  else
    *out = c;
  return status;
}

void petra_checkpoints_destroy(petra_checkpoints *c) {
  if (!c)
    return;
  petra_worker_cost_destroy(c->counting);
  petra_free(c->measured);
  petra_free(c);
}

petra_worker *petra_checkpoints_worker(petra_checkpoints *c) {
  return &c->base;
}

/* --- which run a checkpoint is of --- */

static petra_status compare(const char *path, const char *found, const petra_config *expected) {
  const petra_config_text text = {.path = path, .text = found, .size = strlen(found)};
  petra_config_difference difference;
  petra_config *config;
  PETRA_TRY(petra_config_load_text(&text, NULL, 0, &config));
  int order = petra_config_compare(config, expected, PETRA_ROLE_RESULT, &difference);
  petra_config_destroy(config);
  return order == 0
             ? PETRA_OK
             : petra_fail(PETRA_CONFIG,
                          "%s: was written with %s: %s, and the config has %s; expected the config of the run that "
                          "is resumed",
                          path, difference.key, difference.a, difference.b);
}

petra_status petra_checkpoint_find(const char *path, const petra_config *config, petra_archive **out) {
  petra_archive *archive;
  *out = NULL;
  if (access(path, F_OK) != 0)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoint_open(path, &archive));
  petra_status status = compare(path, petra_checkpoint_config(archive), config);
  if (status != PETRA_OK)
    petra_checkpoint_destroy(archive);
  else
    *out = archive;
  return status;
}

petra_status petra_checkpoint_begin(petra_archive *archive, const petra_config *config, int64_t microbatches,
                                    int64_t *read, char **log, size_t *bytes) {
  int64_t begin[BEGIN_COUNT];
  char *image;
  PETRA_TRY(petra_archive_integers(archive, "begin", begin, BEGIN_COUNT));
  if (begin[BEGIN_READ] >= microbatches)
    return petra_config_fail(
        config, "run.epochs",
        "%lld microbatches in all, and the checkpoint was written after %lld; expected a longer run",
        (long long)microbatches, (long long)begin[BEGIN_READ]);
  if (begin[BEGIN_LOG_BYTES] < 1)
    return petra_fail(PETRA_DATA, "the checkpoint holds no log; expected a checkpoint of this run");
  PETRA_TRY(petra_allocate_raw(&image, (size_t)begin[BEGIN_LOG_BYTES], 1));
  petra_status status = petra_archive_values(archive, "log", PETRA_ARCHIVE_U8, begin[BEGIN_LOG_BYTES], image);
  if (status != PETRA_OK) {
    petra_free(image);
    return status;
  }
  *read = begin[BEGIN_READ];
  *log = image;
  *bytes = (size_t)begin[BEGIN_LOG_BYTES];
  return PETRA_OK;
}
