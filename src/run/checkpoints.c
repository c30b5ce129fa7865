#include "run/checkpoints.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "exec/worker_stage.h"
#include "io/checkpoint.h"
#include "sim/worker_cost.h"

#include <stddef.h>
#include <unistd.h>

typedef struct checkpoints {
  petra_observer base;
  petra_worker again; /* does the actions again that the checkpoint has done, as far as they are counted; then others */
  petra_checkpoints_options options;
  petra_worker *counting; /* NULL: the run begins at its beginning */
  int64_t done;           /* actions done */
  int64_t resumed;        /* of these, those that the checkpoint has done */
  int64_t *measured;      /* of all actions done, where durations are measured; NULL: they are not */
  int64_t measured_capacity;
  int64_t written;    /* microbatches that had been read at the last checkpoint */
  int64_t read_again; /* by the actions that were done once more */
} checkpoints;

enum { BEGIN_ACTIONS, BEGIN_READ, BEGIN_LOG_BYTES, BEGIN_COUNT };

/* Of an action: a month. */
static const int64_t LONGEST_NS = INT64_C(2592000000000000);

/* All tensors under the accounts of their stages, and of the probe. */
static petra_status archive_tensors(checkpoints *c, petra_archive *archive) {
  const petra_network *network = c->options.network;
  const int32_t stages = network->plan->stages;
  petra_account **accounts;
  PETRA_TRY(petra_allocate(&accounts, (size_t)stages + 1, sizeof *accounts));
  for (int32_t j = 0; j < stages; j++)
    accounts[j] = petra_stage_account(network->stage[j]);
  if (c->options.probe)
    accounts[stages] = petra_probe_account(c->options.probe);
  petra_tensor_archive tensors = {
      .archive = archive, .backend = network->backend, .accounts = accounts, .account_count = stages};
  petra_status status = petra_worker_stage_archive(c->options.worker, &tensors);
  tensors.account_count += c->options.probe != NULL; /* its own outlives nothing but itself */
  if (status == PETRA_OK)
    status = petra_probe_archive(c->options.probe, &tensors);
  petra_tensor_archive_fini(&tensors);
  petra_free(accounts);
  return status;
}

static petra_status archive_all(checkpoints *c, petra_archive *archive) {
  PETRA_TRY(petra_training_log_archive(c->options.log, archive));
  return archive_tensors(c, archive);
}

static petra_status fill(checkpoints *c, petra_archive *archive) {
  char *log;
  size_t bytes;
  PETRA_TRY(petra_runlog_image(c->options.runlog, &log, &bytes));
  int64_t begin[BEGIN_COUNT] = {c->done, petra_worker_stage_read(c->options.worker), (int64_t)bytes};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_archive_integers(archive, "begin", begin, BEGIN_COUNT), done);
  PETRA_TRY_GOTO(status, petra_archive_values(archive, "log", PETRA_ARCHIVE_U8, (int64_t)bytes, log), done);
  if (c->options.measure)
    PETRA_TRY_GOTO(status, petra_archive_integers(archive, "measured_ns", c->measured, c->done), done);
  status = archive_all(c, archive);
done:
  petra_free(log);
  return status;
}

static petra_status write_checkpoint(checkpoints *c) {
  petra_archive *archive;
  PETRA_TRY(petra_checkpoint_create(c->options.path, c->options.config, &archive));
  petra_status status = fill(c, archive);
  if (status == PETRA_OK)
    status = petra_checkpoint_write(archive);
  petra_checkpoint_destroy(archive);
  c->written = petra_worker_stage_read(c->options.worker);
  return status;
}

/* Whether stage 1 reads a microbatch with an action of this kind. */
static bool is_first(const checkpoints *c, petra_action_kind kind) {
  bool fused = petra_program_fused(&c->options.network->plan->program, 1);
  return kind == (fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD);
}

/* Whether stage 1 is about to read the first microbatch after a checkpoint is due. */
static bool is_due(const checkpoints *c, const petra_action *actions, int count) {
  int64_t read = petra_worker_stage_read(c->options.worker);
  if (c->options.every == 0 || read == 0 || read % c->options.every != 0 || read == c->written)
    return false;
  for (int i = 0; i < count; i++)
    if (actions[i].stage == 1 && actions[i].microbatch == read && is_first(c, actions[i].kind))
      return true;
  return false;
}

static petra_status starting(petra_observer *base, int64_t now_ns, const petra_action *actions, int count) {
  checkpoints *c = (checkpoints *)base;
  (void)now_ns;
  if (c->done < c->resumed || !is_due(c, actions, count))
    return PETRA_OK;
  PETRA_TRY(petra_worker_finish(c->options.worker)); /* the log is in the checkpoint */
  return write_checkpoint(c);
}

/* Durations that are measured cannot be found again: what was done before the checkpoint takes what it took then. */
static petra_status remember(checkpoints *c, int count, const petra_action_result *results) {
  PETRA_TRY(petra_array_reserve(&c->measured, &c->measured_capacity, c->done + count, sizeof *c->measured));
  for (int i = 0; i < count; i++)
    c->measured[c->done + i] = results[i].measured_ns;
  return PETRA_OK;
}

static petra_status started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                            const petra_action_result *results, int count) {
  checkpoints *c = (checkpoints *)base;
  (void)now_ns;
  for (int i = 0; i < count && c->done < c->resumed; i++)
    c->read_again += actions[i].stage == 1 && is_first(c, actions[i].kind);
  if (c->done < c->resumed && c->done + count == c->resumed && c->read_again != c->written)
    return petra_fail(
        PETRA_DATA, "%s: item /begin: %lld actions read %lld microbatches, not %lld; expected a checkpoint of this run",
        c->options.path, (long long)c->resumed, (long long)c->read_again, (long long)c->written);
  if (c->options.measure && c->done >= c->resumed)
    PETRA_TRY(remember(c, count, results));
  c->done += count;
  return PETRA_OK;
}

/* --- a run that goes on from a checkpoint ---
 * The actions that the checkpoint has done are counted and nothing else, up to where it was written; from there on the
 * worker does them. The virtual clock, messages under way and all random draws are then as they were, and nothing of the
 * executor is in the file. */

static checkpoints *of_worker(petra_worker *again) {
  return (checkpoints *)((char *)again - offsetof(checkpoints, again));
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  const checkpoints *c = of_worker(base);
  const bool again = c->done < c->resumed;
  petra_worker *worker = again ? c->counting : c->options.worker;
  if (again && c->done + count > c->resumed)
    return petra_fail(
        PETRA_DATA, "%s: its %lld actions end in the middle of what starts together; expected a checkpoint of this run",
        c->options.path, (long long)c->resumed);
  PETRA_TRY(worker->ops->perform(worker, virtual_ns, actions, count, results));
  for (int i = 0; again && c->options.measure && i < count; i++)
    results[i].measured_ns = c->measured[c->done + i];
  return PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  const checkpoints *c = of_worker(base);
  if (c->done < c->resumed)
    return petra_fail(PETRA_DATA,
                      "%s: item /begin: %lld actions, and the run has %lld; expected a checkpoint of this run",
                      c->options.path, (long long)c->resumed, (long long)c->done);
  return petra_worker_finish(c->options.worker);
}

static petra_status resume(checkpoints *c) {
  const petra_plan *plan = c->options.network->plan;
  int64_t begin[BEGIN_COUNT];
  petra_archive *archive = c->options.resume;
  PETRA_TRY(petra_archive_integers(archive, "begin", begin, BEGIN_COUNT));
  PETRA_TRY(petra_archive_within(archive, "begin", "actions", begin[BEGIN_ACTIONS], 1, INT64_MAX));
  c->resumed = begin[BEGIN_ACTIONS];
  c->written = begin[BEGIN_READ];
  if (c->options.measure) {
    PETRA_TRY(petra_archive_require(archive, "measured_ns", PETRA_ARCHIVE_I64, c->resumed));
    PETRA_TRY(petra_allocate(&c->measured, (size_t)c->resumed, sizeof *c->measured));
    c->measured_capacity = c->resumed;
    PETRA_TRY(petra_archive_integers(archive, "measured_ns", c->measured, c->resumed));
    for (int64_t i = 0; i < c->resumed; i++)
      PETRA_TRY(petra_archive_within(archive, "measured_ns", "a duration", c->measured[i], 0, LONGEST_NS));
  }
  const petra_worker_cost_options counting = petra_worker_cost_of(&plan->method, &plan->program);
  PETRA_TRY(petra_worker_cost_create(&counting, &c->counting));
  PETRA_TRY(archive_all(c, archive));
  int64_t read = petra_worker_stage_read(c->options.worker);
  return petra_archive_within(archive, "begin", "microbatches read", begin[BEGIN_READ], read, read);
}

petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_observer **out,
                                      petra_worker **worker) {
  static const petra_observer_ops ops = {.starting = starting, .started = started};
  static const petra_worker_ops worker_ops = {.perform = perform, .finish = finish};
  checkpoints *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  c->base.ops = &ops;
  c->again.ops = &worker_ops;
  c->options = *options;
  petra_status status = options->resume ? resume(c) : PETRA_OK;
  if (status != PETRA_OK) {
    petra_checkpoints_destroy(&c->base);
    return status;
  }
  *out = &c->base;
  *worker = options->resume ? &c->again : options->worker;
  return PETRA_OK;
}

void petra_checkpoints_destroy(petra_observer *base) {
  checkpoints *c = (checkpoints *)base;
  if (!c)
    return;
  petra_worker_cost_destroy(c->counting);
  petra_free(c->measured);
  petra_free(c);
}

/* --- which run a checkpoint is of --- */

static petra_status compare(const char *path, const char *found, const petra_config *expected) {
  petra_config_difference difference;
  int order;
  PETRA_TRY(petra_config_compare_text(path, found, expected, PETRA_ROLE_RESULT, &order, &difference));
  return order == 0
             ? PETRA_OK
             : petra_fail(
                   PETRA_CONFIG,
                   "%s: was written with %s: %s, and the config has %s; expected the config of the run that is resumed",
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
  PETRA_TRY(petra_archive_within(archive, "begin", "microbatches read", begin[BEGIN_READ], 1, INT64_MAX));
  if (begin[BEGIN_READ] >= microbatches)
    return petra_config_fail(
        config, "run.epochs",
        "%lld microbatches in all, and the checkpoint was written after %lld; expected a longer run",
        (long long)microbatches, (long long)begin[BEGIN_READ]);
  PETRA_TRY(
      petra_archive_within(archive, "begin", "bytes of the log", begin[BEGIN_LOG_BYTES], PETRA_SEAL_BYTES, INT64_MAX));
  PETRA_TRY(petra_archive_require(archive, "log", PETRA_ARCHIVE_U8, begin[BEGIN_LOG_BYTES]));
  PETRA_TRY(petra_allocate_raw(&image, (size_t)begin[BEGIN_LOG_BYTES], 1));
  petra_status status = petra_archive_values(archive, "log", PETRA_ARCHIVE_U8, begin[BEGIN_LOG_BYTES], image);
  if (status == PETRA_OK)
    status = petra_seal_check_image("the log in the checkpoint", image, (size_t)begin[BEGIN_LOG_BYTES]);
  if (status != PETRA_OK) {
    petra_free(image);
    return status;
  }
  *read = begin[BEGIN_READ];
  *log = image;
  *bytes = (size_t)begin[BEGIN_LOG_BYTES];
  return PETRA_OK;
}
