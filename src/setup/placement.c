/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/placement.h"

#include "backend/registry.h"
#include "base/log.h"
#include "base/mem.h"
#include "nn/model.h"
#include "setup/virtual_cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Computes the cost of a microbatch at each stage: the times of the profile if there is one, else FLOPs. */
static petra_status stage_costs(const petra_plan *plan, int64_t *costs) {
  for (int j = 0; j < plan->stages; j++) {
    petra_stage_cost cost = {0};
    if (plan->config->cluster.stages > 0) { /* without a model all stages are equal */
      costs[j] = 1;
      continue;
    }
    if (plan->profile) {
      PETRA_TRY(petra_plan_profile_cost(plan, j, PETRA_PROFILE_MEAN, &cost));
      costs[j] = cost.forward_ns + cost.backward_ns + (plan->method.recomputes ? cost.reconstruct_ns : 0);
    }
    for (int i = 0; !plan->profile && i < petra_plan_stage_blocks(plan, j); i++)
      costs[j] += petra_block_work(&plan->model.blocks[petra_plan_stage_block(plan, j, i)], NULL);
  }
  return PETRA_OK;
}

/* first[r] is the first device, from 0, of rank r. */
static petra_status cut_balanced(const petra_plan *plan, int devices, int ranks, int *first) {
  PETRA_FREED int64_t *costs = NULL, *of_devices = NULL;
  PETRA_TRY(petra_allocate(&costs, (size_t)plan->stages, sizeof *costs));
  PETRA_TRY(petra_allocate(&of_devices, (size_t)devices, sizeof *of_devices));
  PETRA_TRY(stage_costs(plan, costs));
  for (int j = 0; j < plan->stages; j++)
    of_devices[petra_program_device(&plan->program, j + 1) - 1] += costs[j];
  return petra_balanced_cut(of_devices, devices, ranks, first);
}

static petra_status cut_by_list(const petra_plan *plan, int devices, int ranks, int *first) {
  const petra_int_list *list = &plan->config->cluster.placement;
  int64_t sum = 0;
  if (list->count != ranks)
    return petra_config_fail(plan->config, "cluster.placement",
                             "%lld numbers for %d process%s%s; expected one per process, or [] to balance them",
                             (long long)list->count, ranks, ranks == 1 ? "" : "es",
                             plan->config->cluster.replicas > 1 ? " of each replica" : "");
  for (int r = 0; r < ranks; r++) {
    first[r] = (int)(sum <= devices ? sum : devices);
    sum += list->values[r];
  }
  if (sum != devices)
    return petra_config_fail(plan->config, "cluster.placement", "the numbers sum to %lld; expected %d, the %s",
                             (long long)sum, devices,
                             devices < plan->stages ? "devices of the method" : "stages of the network");
  first[ranks] = devices;
  return PETRA_OK;
}

petra_status petra_placement_cut(const petra_plan *plan, int ranks, int32_t *rank_of) {
  const int devices = petra_program_devices(&plan->program);
  PETRA_FREED int *first = NULL;
  PETRA_TRY(petra_allocate(&first, (size_t)ranks + 1, sizeof *first));
  PETRA_TRY(plan->config->cluster.placement.count > 0 ? cut_by_list(plan, devices, ranks, first)
                                                      : cut_balanced(plan, devices, ranks, first));
  for (int j = 0; j < plan->stages; j++) {
    const int device = petra_program_device(&plan->program, j + 1) - 1;
    rank_of[j] = 0;
    while (first[rank_of[j] + 1] <= device)
      rank_of[j]++;
  }
  return PETRA_OK;
}

petra_status petra_placement_init(petra_placement *placement, const petra_plan *plan, petra_ranks *ranks) {
  const int devices = petra_program_devices(&plan->program);
  const int replicas = (int)plan->config->cluster.replicas;
  *placement = (petra_placement){.ranks = ranks, .replicas = replicas};
  if (ranks->progress && ranks->count % replicas != 0)
    return petra_config_fail(plan->config, "cluster.replicas",
                             "%d replicas of %d process%s; expected the same number of processes for each replica",
                             replicas, ranks->count, ranks->count == 1 ? "" : "es");
  placement->replica_ranks = ranks->progress ? ranks->count / replicas : 1;
  placement->stride = ranks->progress ? placement->replica_ranks : 0;
  placement->replica = ranks->rank / placement->replica_ranks;
  if (placement->replica_ranks > devices)
    return petra_config_fail(
        plan->config, "run.mode", "%d processes for %d %s%s; expected at most one process for each",
        placement->replica_ranks, devices, devices < plan->stages ? "devices of the method" : "stages",
        replicas > 1 ? " in each replica" : "");
  PETRA_TRY(petra_allocate(&placement->rank_of, (size_t)plan->stages, sizeof *placement->rank_of));
  if (!ranks->progress)
    return PETRA_OK;
  PETRA_TRY(petra_placement_cut(plan, placement->replica_ranks, placement->rank_of));
  for (int j = 0; j < plan->stages; j++)
    placement->rank_of[j] += placement->replica * placement->replica_ranks;
  return PETRA_OK;
}

void petra_placement_fini(petra_placement *placement) {
  petra_free(placement->rank_of);
  *placement = (petra_placement){0};
}

void petra_placement_describe(const petra_placement *placement, const petra_plan *plan, char *text, size_t size) {
  int here = 0;
  for (int32_t j = 1; j <= plan->stages; j++)
    here += petra_placement_has(placement, j);
  size_t at = 0;
  if (placement->replicas > 1)
    at = (size_t)snprintf(text, size, "replica %d, ", placement->replica);
  at += (size_t)snprintf(text + at, size - at, here == 1 ? "stage" : "stages");
  const size_t word = at;
  for (int32_t j = 1, last; j <= plan->stages; j = last + 1) {
    last = j;
    if (!petra_placement_has(placement, j))
      continue;
    while (last < plan->stages && petra_placement_has(placement, last + 1))
      last++;
    if (at < size)
      at += (size_t)snprintf(text + at, size - at, last > j ? "%s %d .. %d" : "%s %d", at > word ? "," : "", j, last);
  }
}

/* --- groups of threads --- */

enum { ACTIONS_A_STAGE = 64 }; /* number of actions to examine: many rounds of the steady state */

/* A worker that computes nothing and adds up the durations of groups of actions. */
typedef struct group_counter {
  petra_worker base;
  const petra_plan *plan;
  int maximum;    /* groups */
  double *flops;  /* J: FLOPs of an F */
  double *length; /* durations of the actions of a group; at most 2 J */
  double *busy;   /* `maximum`: busy time of each group of threads */
  double *sum;    /* `maximum`: sums of durations, by number of groups - 1 */
  int64_t left;   /* actions that remain to be examined */
} group_counter;

double petra_groups_speed(int threads) {
  return pow(threads, 0.7);
}

/* Returns the FLOPs of an action, in passes of a convolution. */
static double length_of(const group_counter *c, const petra_action *action) {
  const petra_plan *plan = c->plan;
  const bool fused = petra_program_fused(&plan->program, action->stage);
  const double passes_again = fused || plan->method.keep != PETRA_KEEP_GRAPH ? 1 : 0;
  const double split = plan->method.program->split_backward ? 1 : 0;
  double passes = 0;
  if (action->kind == PETRA_ACTION_FORWARD || action->kind == PETRA_ACTION_WEIGHT_GRADIENT)
    passes = 1;
  else if (action->kind == PETRA_ACTION_BACKWARD)
    passes = 2 + passes_again - split;
  return passes * c->flops[action->stage - 1];
}

static int longest_first(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

/* Returns the time at which the last of `count` actions ends if each action goes to the group that is free first. */
static double list_schedule(const group_counter *c, int count, int groups) {
  double last = 0;
  for (int g = 0; g < groups; g++)
    c->busy[g] = 0;
  for (int i = 0; i < count; i++) {
    int first = 0;
    for (int g = 1; g < groups; g++)
      if (c->busy[g] < c->busy[first])
        first = g;
    c->busy[first] += c->length[i];
    last = fmax(last, c->busy[first]);
  }
  return last;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  group_counter *c = (group_counter *)base;
  (void)virtual_ns, (void)results;
  for (int i = 0; i < count; i++)
    c->length[i] = length_of(c, &actions[i]);
  qsort(c->length, (size_t)count, sizeof *c->length, longest_first);
  for (int g = 1; g <= c->maximum; g++)
    c->sum[g - 1] += list_schedule(c, count, g);
  c->left -= count;
  return c->left > 0 ? PETRA_OK : PETRA_STOPPED; /* the remaining actions do not matter */
}

static petra_status run(group_counter *c) {
  PETRA_FINISHED(petra_cluster_fini) petra_cluster cluster = {0};
  petra_executor *executor;
  petra_program_options program = c->plan->program;
  program.warmup = 0; /* the warm-up is usually the smaller part of the run */
  PETRA_TRY(petra_cluster_init(&cluster, c->plan));
  PETRA_TRY(petra_executor_virtual_create(&cluster.executor, &executor));
  const petra_status status = executor->ops->run(executor, c->plan->method.program, &program, &c->base, NULL);
  petra_executor_destroy(executor);
  return c->left <= 0 ? PETRA_OK : status;
}

static int fastest(const group_counter *c, int threads) {
  int best = 1;
  for (int g = 2; g <= c->maximum; g++)
    if (c->sum[g - 1] / petra_groups_speed(threads / g) < c->sum[best - 1] / petra_groups_speed(threads / best))
      best = g;
  return best;
}

petra_status petra_groups_choose(const petra_plan *plan, int threads, int *groups) {
  static const petra_worker_ops ops = {.perform = perform};
  const int stages = plan->stages, maximum = threads < 2 * stages ? threads : 2 * stages;
  group_counter c = {.base.ops = &ops, .plan = plan, .maximum = maximum, .left = (int64_t)ACTIONS_A_STAGE * stages};
  PETRA_FREED double *numbers = NULL;
  *groups = 1;
  if (plan->program.stages == 0 || maximum == 1)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&numbers, (size_t)(3 * stages + 2 * maximum), sizeof *numbers));
  c.flops = numbers;
  c.length = c.flops + stages;
  c.busy = c.length + 2 * stages;
  c.sum = c.busy + maximum;
  for (int j = 0; j < stages; j++)
    for (int i = 0; i < petra_plan_stage_blocks(plan, j); i++)
      c.flops[j] += (double)petra_block_work(&plan->model.blocks[petra_plan_stage_block(plan, j, i)], NULL);
  PETRA_TRY(run(&c));
  *groups = fastest(&c, threads);
  return PETRA_OK;
}

/* Returns the reason why only one action can be done at a time; NULL if several can. */
static const char *one_at_a_time(const petra_config *config, bool executed) {
  if (executed)
    return "run.mode: execute, where a process does one action at a time";
  return config->cluster.cost.model == PETRA_COST_MEASURED
             ? "cluster.cost.model: measured, where one action is measured at a time"
             : NULL;
}

/* Returns the threads per group if device.groups exceeds 1. */
static petra_status divide(const petra_config *config, int threads, bool executed, petra_groups *out) {
  const char *reason = one_at_a_time(config, executed);
  const int groups = (int)config->device.groups;
  if (reason)
    return petra_config_fail(config, "device.groups", "%d with %s; expected 1", groups, reason);
  if (config->device.threads > 0 && threads % groups != 0)
    return petra_config_fail(config, "device.groups", "%d with device.threads: %d; expected a divisor of it", groups,
                             threads);
  if (threads < groups)
    return petra_config_fail(config, "device.groups",
                             "%d on %d core%s; expected at most that many, or device.threads set to a multiple", groups,
                             threads, threads == 1 ? "" : "s");
  *out = (petra_groups){groups, threads / groups};
  return PETRA_OK;
}

petra_status petra_groups_of(const petra_plan *plan, int threads, bool executed, petra_groups *out) {
  const petra_config *config = plan->config;
  const bool cuda = petra_backend_choose(config->device.backend, config->device.precision) == PETRA_BACKEND_CUDA;
  *out = (petra_groups){1, threads};
  if (cuda && config->device.groups > 1)
    petra_log(PETRA_LOG_INFO, "device.groups: 1 instead of %lld: cuda itself runs actions at the same time",
              (long long)config->device.groups);
  if (cuda || config->device.groups == 1)
    return PETRA_OK;
  if (config->device.groups > 1)
    return divide(config, threads, executed, out);
  if (!one_at_a_time(config, executed))
    PETRA_TRY(petra_groups_choose(plan, threads, &out->groups));
  out->threads = threads / out->groups;
  return PETRA_OK;
}
