/* SPDX-License-Identifier: Apache-2.0 */
/* Performs the actions of a group in parallel. Work on what the actions share is done before and after the parallel
 * part, in the order of the group. First the actions take their inputs. Then a thread of the pool computes each chain
 * (the actions of one stage), and journals record its changes to references and accounts. Finally, action by action,
 * the journal is applied, messages are posted and observers notified. So everything except the durations is the same as
 * if the actions ran in the order of the group. */
#include "base/clock.h"
#include "base/mem.h"
#include "exec/worker_stage_private.h"

#include <assert.h>
#include <stdlib.h>

petra_status petra_group_init(petra_worker_stage *worker) {
  const int stages = worker->stages.count;
  if (worker->backend->lanes == 1)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&worker->chains, (size_t)stages, sizeof *worker->chains));
  PETRA_TRY(petra_allocate(&worker->took_ns, (size_t)stages, sizeof *worker->took_ns));
  PETRA_TRY(petra_allocate(&worker->tasks, PETRA_STEP_ACTIONS * (size_t)stages, sizeof *worker->tasks));
  for (; worker->task_count < PETRA_STEP_ACTIONS * stages; worker->task_count++)
    PETRA_TRY(petra_deferred_work_init(&worker->tasks[worker->task_count].deferred));
  return petra_thread_pool_create(worker->backend->lanes, &worker->pool);
}

void petra_group_fini(petra_worker_stage *worker) {
  petra_thread_pool_destroy(worker->pool);
  for (int i = 0; i < worker->task_count; i++)
    petra_deferred_work_fini(&worker->tasks[i].deferred);
  PETRA_FREE_ALL(worker->tasks, worker->chains, worker->took_ns);
}

/* Prepares the task of an action, and takes its inputs. */
static petra_status prepare(petra_worker_stage *worker, petra_group_task *one, int64_t virtual_ns,
                            const petra_action *action, const petra_action_result *result) {
  one->task = (petra_task){.action = *action, .virtual_ns = virtual_ns, .result = *result};
  petra_deferred_work_begin(&one->deferred, worker->backend);
  petra_deferred_work_enter(&one->deferred, false);
  petra_status status = petra_task_prepare(worker, &one->task);
  petra_deferred_work_leave(&one->deferred);
  return status;
}

/* Runs in the thread pool. */
static petra_status compute(petra_worker_stage *worker, petra_group_task *one) {
  const petra_action *action = &one->task.action;
  const int64_t begin_ns = petra_clock_ns();
  petra_deferred_work_enter(&one->deferred, true);
  one->deferred.status = petra_task_compute(worker, &one->task);
  petra_deferred_work_leave(&one->deferred);
  worker->took_ns[action->stage - 1][action->kind] = petra_clock_ns() - begin_ns;
  return one->deferred.status;
}

static void compute_chain(void *context, int job) {
  petra_worker_stage *worker = context;
  petra_status status = PETRA_OK;
  for (int i = 0; i < worker->group && status == PETRA_OK; i++)
    if (worker->tasks[i].task.action.stage == worker->chains[job].stage)
      status = compute(worker, &worker->tasks[i]);
}

static int longest_first(const void *a, const void *b) {
  const petra_chain *x = a, *y = b;
  return (x->expected_ns < y->expected_ns) - (x->expected_ns > y->expected_ns);
}

/* Makes one chain per stage that has an action in the group; returns their number. */
static int make_chains(petra_worker_stage *worker) {
  int count = 0;
  for (int i = 0; i < worker->group; i++) {
    const petra_action *action = &worker->tasks[i].task.action;
    int c = 0;
    while (c < count && worker->chains[c].stage != action->stage)
      c++;
    if (c == count)
      worker->chains[count++] = (petra_chain){.stage = action->stage};
    worker->chains[c].expected_ns += worker->took_ns[action->stage - 1][action->kind];
  }
  qsort(worker->chains, (size_t)count, sizeof *worker->chains, longest_first);
  return count;
}

/* Concludes an action. `before` is the status of the actions before it in the group. */
static petra_status conclude(petra_worker_stage *worker, petra_group_task *one, petra_status before) {
  petra_status status = petra_deferred_work_end(&one->deferred, before);
  if (status == PETRA_OK)
    status = petra_task_conclude(worker, &one->task);
  petra_task_release(&one->task);
  return status;
}

petra_status petra_group_perform(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *actions, int count,
                                 petra_action_result *results) {
  petra_status status = PETRA_OK;
  assert(count <= worker->task_count);
  for (worker->group = 0; worker->group < count && status == PETRA_OK; worker->group++)
    status =
        prepare(worker, &worker->tasks[worker->group], virtual_ns, &actions[worker->group], &results[worker->group]);
  if (status == PETRA_OK)
    petra_thread_pool_run(worker->pool, make_chains(worker), compute_chain, worker);
  for (int i = 0; i < worker->group; i++) {
    status = conclude(worker, &worker->tasks[i], status);
    results[i] = worker->tasks[i].task.result;
  }
  return status;
}
