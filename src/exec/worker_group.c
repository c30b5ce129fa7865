/* The actions of a group side by side. What they share is done before and after, in the order of the group: they take
 * their inputs; then each chain (the actions of one stage) computes in some thread of the crew, its changes to references
 * and accounts going into journals; then action by action the journal is read out, messages are posted and observers
 * told. So all but the time is as in the order of the group. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/worker_stage_private.h"

#include <stdlib.h>

petra_status petra_group_init(petra_worker_stage *worker) {
  const size_t stages = (size_t)worker->options.stages.count;
  if (worker->options.backend->lanes == 1)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&worker->chains, stages, sizeof *worker->chains));
  PETRA_TRY(petra_allocate(&worker->took_ns, stages, sizeof *worker->took_ns));
  return petra_crew_create(worker->options.backend->lanes, &worker->crew);
}

void petra_group_fini(petra_worker_stage *worker) {
  petra_crew_destroy(worker->crew);
  for (int64_t i = 0; i < worker->task_count; i++) {
    petra_journal_destroy(worker->tasks[i]->journal);
    petra_free(worker->tasks[i]);
  }
  petra_free(worker->tasks);
  petra_free(worker->chains);
  petra_free(worker->took_ns);
}

static petra_status make_tasks(petra_worker_stage *worker, int count) {
  PETRA_TRY(petra_array_reserve(&worker->tasks, &worker->task_capacity, count, sizeof(petra_task *)));
  while (worker->task_count < count) {
    petra_task *task;
    PETRA_TRY(petra_allocate(&task, 1, sizeof *task));
    worker->tasks[worker->task_count++] = task;
    PETRA_TRY(petra_journal_create(&task->journal));
  }
  return PETRA_OK;
}

/* Makes the task that of an action, and takes what it needs. */
static petra_status prepare(petra_worker_stage *worker, petra_task *task, int64_t virtual_ns,
                            const petra_action *action, const petra_action_result *result) {
  *task = (petra_task){.action = *action, .virtual_ns = virtual_ns, .result = *result, .journal = task->journal};
  petra_journal_open(task->journal, ++worker->numbered);
  petra_status status = petra_task_prepare(worker, task);
  petra_journal_close(task->journal);
  return status;
}

/* In the crew. */
static void compute(petra_worker_stage *worker, petra_task *task) {
  const int64_t begin_ns = petra_clock_ns();
  petra_journal_open(task->journal, petra_journal_number(task->journal));
  petra_lane_here()->failure = task->failure;
  task->status = petra_task_compute(worker, task);
  petra_lane_here()->failure = NULL;
  petra_journal_close(task->journal);
  worker->took_ns[task->action.stage - 1][task->action.kind] = petra_clock_ns() - begin_ns;
}

static void compute_chain(void *context, int job) {
  petra_worker_stage *worker = context;
  petra_status status = PETRA_OK;
  for (int i = 0; i < worker->group && status == PETRA_OK; i++)
    if (worker->tasks[i]->action.stage == worker->chains[job].stage) {
      compute(worker, worker->tasks[i]);
      status = worker->tasks[i]->status;
    }
}

static int longest_first(const void *a, const void *b) {
  const petra_chain *x = a, *y = b;
  return (x->expected_ns < y->expected_ns) - (x->expected_ns > y->expected_ns);
}

/* One chain a stage that has an action in the group; returns their number. */
static int make_chains(petra_worker_stage *worker) {
  int count = 0;
  for (int i = 0; i < worker->group; i++) {
    const petra_action *action = &worker->tasks[i]->action;
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

/* `before`: of the actions before it in the group. */
static petra_status conclude(petra_worker_stage *worker, petra_task *task, petra_status before) {
  petra_status status = before;
  petra_journal_read_out(task->journal);
  if (status == PETRA_OK && task->failure[0])
    petra_log(PETRA_LOG_ERROR, "%s", task->failure);
  if (status == PETRA_OK)
    status = task->status;
  if (status == PETRA_OK)
    status = petra_task_conclude(worker, task);
  petra_task_release(task);
  return status;
}

petra_status petra_group_perform(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *actions, int count,
                                 petra_action_result *results) {
  petra_status status = PETRA_OK;
  PETRA_TRY(make_tasks(worker, count));
  for (worker->group = 0; worker->group < count && status == PETRA_OK; worker->group++)
    status =
        prepare(worker, worker->tasks[worker->group], virtual_ns, &actions[worker->group], &results[worker->group]);
  if (status == PETRA_OK)
    petra_crew_run(worker->crew, make_chains(worker), compute_chain, worker);
  for (int i = 0; i < worker->group; i++) {
    status = conclude(worker, worker->tasks[i], status);
    results[i] = worker->tasks[i]->result;
  }
  return status;
}
