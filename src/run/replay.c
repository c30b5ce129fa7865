#include "run/replay.h"

#include "base/log.h"
#include "base/mem.h"

typedef struct replay {
  petra_worker base;
  petra_replay_options options;
  petra_worker *counting;
  int64_t done; /* actions given to us */
} replay;

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  replay *r = (replay *)base;
  const petra_replay_options *options = &r->options;
  const bool again = r->done < options->actions;
  petra_worker *worker = again ? r->counting : options->worker;
  if (again && r->done + count > options->actions)
    return petra_fail(PETRA_DATA,
                      "%s: its %lld actions end in the middle of what starts together; expected a checkpoint of this "
                      "run",
                      options->path, (long long)options->actions);
  PETRA_TRY(worker->ops->perform(worker, virtual_ns, actions, count, results));
  for (int i = 0; again && options->measured_ns && i < count; i++)
    results[i].measured_ns = options->measured_ns[r->done + i];
  r->done += count;
  return PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  const replay *r = (const replay *)base;
  if (r->done < r->options.actions)
    return petra_fail(PETRA_DATA,
                      "%s: item /begin: %lld actions, and the run has %lld; expected a checkpoint of this run",
                      r->options.path, (long long)r->options.actions, (long long)r->done);
  return petra_worker_finish(r->options.worker);
}

petra_status petra_replay_create(const petra_replay_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  replay *r;
  PETRA_TRY(petra_allocate(&r, 1, sizeof *r));
  r->base.ops = &ops;
  r->options = *options;
  petra_status status = petra_worker_cost_create(&options->counting, &r->counting);
  if (status != PETRA_OK)
    petra_free(r);
  else
    *out = &r->base;
  return status;
}

void petra_replay_destroy(petra_worker *worker) {
  if (!worker)
    return;
  petra_worker_cost_destroy(((replay *)worker)->counting);
  petra_free(worker);
}
