/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/rank_simulation.h"

#include "base/mem.h"
#include "sim/worker_cost.h"

#include <math.h>

/* --- the time in which several ranks compute --- */

/* An interval in which a rank is in actions without interruption. */
typedef struct span {
  int64_t start_ns, end_ns;
} span;

/* The spans of a rank, in order of time: a rank does one action at a time. */
typedef struct spans {
  span *spans;
  int64_t count, capacity;
} spans;

typedef struct overlap_observer {
  petra_observer base;
  const int32_t *device_of;
  int32_t ranks;
  spans of[];
} overlap_observer;

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  overlap_observer *overlap = (overlap_observer *)base;
  spans *own = &overlap->of[overlap->device_of[row->action.stage - 1] - 1];
  if (row->end_ns == row->start_ns)
    return PETRA_OK;
  if (own->count > 0 && own->spans[own->count - 1].end_ns == row->start_ns) {
    own->spans[own->count - 1].end_ns = row->end_ns;
    return PETRA_OK;
  }
  PETRA_TRY(petra_array_reserve(&own->spans, &own->capacity, own->count + 1, sizeof *own->spans));
  own->spans[own->count++] = (span){row->start_ns, row->end_ns};
  return PETRA_OK;
}

petra_status petra_overlap_create(const int32_t *device_of, int32_t ranks, petra_observer **out) {
  static const petra_observer_ops ops = {.ended = ended};
  overlap_observer *overlap;
  PETRA_TRY(petra_allocate(&overlap, 1, sizeof *overlap + (size_t)ranks * sizeof *overlap->of));
  overlap->base.ops = &ops;
  overlap->device_of = device_of;
  overlap->ranks = ranks;
  *out = &overlap->base;
  return PETRA_OK;
}

void petra_overlap_destroy(petra_observer *base) {
  overlap_observer *overlap = (overlap_observer *)base;
  if (!overlap)
    return;
  for (int32_t r = 0; r < overlap->ranks; r++)
    petra_free(overlap->of[r].spans);
  petra_free(overlap);
}

static double busy_ns(const spans *own) {
  double sum = 0;
  for (int64_t i = 0; i < own->count; i++)
    sum += (double)(own->spans[i].end_ns - own->spans[i].start_ns);
  return sum;
}

/* Returns the time in which both ranks are in actions. */
static double both_ns(const spans *one, const spans *other) {
  double sum = 0;
  for (int64_t i = 0, k = 0; i < one->count && k < other->count;) {
    const span *a = &one->spans[i], *b = &other->spans[k];
    const int64_t start_ns = a->start_ns > b->start_ns ? a->start_ns : b->start_ns;
    const int64_t end_ns = a->end_ns < b->end_ns ? a->end_ns : b->end_ns;
    if (end_ns > start_ns)
      sum += (double)(end_ns - start_ns);
    if (a->end_ns < b->end_ns)
      i++;
    else
      k++;
  }
  return sum;
}

void petra_overlap_shares(const petra_observer *base, double *shares) {
  const overlap_observer *overlap = (const overlap_observer *)base;
  for (int32_t r = 0; r < overlap->ranks; r++) {
    const double own_ns = busy_ns(&overlap->of[r]);
    double sum_ns = 0;
    for (int32_t o = 0; o < overlap->ranks; o++)
      if (o != r)
        sum_ns += both_ns(&overlap->of[r], &overlap->of[o]);
    shares[r] = own_ns > 0 && overlap->ranks > 1 ? sum_ns / (own_ns * (overlap->ranks - 1)) : 0;
  }
}

/* --- the simulation --- */

enum { STATISTICS = PETRA_PROFILE_QUARTILE3 + 1, ROUNDS = 4 };

static const double UNPROFILED = 1 / 0.9; /* factor of petra_rank_simulation_high_s */

/* The actions of one rank. */
typedef struct order {
  petra_schedule_entry *actions;
  int64_t count, capacity;
} order;

/* The arguments of the executor over the ranks, for one statistic of the profile. */
typedef struct variant {
  petra_executor_virtual_options executor;
  petra_stage_cost *costs;
  petra_link_times times, shared;
  int64_t ns[PETRA_PROFILE_MESSAGES], shared_ns[PETRA_PROFILE_MESSAGES];
} variant;

struct petra_rank_simulation {
  petra_observer base; /* observes the run over the stages */
  const petra_plan *plan;
  const petra_cluster *cluster;
  int32_t *device_of; /* rank of each stage, from 1; NULL: not placed */
  double *shares;     /* per rank: share of the others that compute while it does; NULL: not used */
  int32_t ranks;
  order *orders; /* per rank */
  bool ordered, measured_link;
  int64_t bytes[PETRA_PROFILE_MESSAGES];
  variant variant[STATISTICS];
  petra_method method; /* the method, which runs `program` */
  petra_program_ops program;
  petra_program_options options;
};

/* --- costs --- */

/* Returns the time that a message of `bytes` bytes costs the rank that sends or receives it: the time for packing or
 * unpacking the tensors, and the computing time that moving the message takes while a share of the other ranks compute
 * (a rank that waits leaves its core). The times are interpolated from the message sizes of the profile, as in
 * petra_link_time_ns. */
static int64_t message_ns(const petra_rank_simulation *p, int32_t stage, int64_t bytes, bool sends) {
  const petra_profile *profile = p->plan->profile;
  const double share = p->shares ? p->shares[p->device_of[stage - 1] - 1] : 1;
  int64_t ns[PETRA_PROFILE_MESSAGES];
  for (int32_t i = 0; i < profile->messages; i++) {
    const petra_profile_message *m = &profile->message[i];
    ns[i] = petra_nanoseconds((sends ? m->pack_s : m->unpack_s) + share * m->carry_s);
  }
  return petra_link_time_ns(&(petra_link_times){profile->messages, p->bytes, ns}, bytes);
}

/* Adds the time that the rank of a stage spends on messages from and to other ranks and, with replicas, on its
 * gradients. */
static void add_messages(const petra_rank_simulation *p, int32_t stage, petra_stage_cost *costs) {
  petra_stage_cost *cost = &costs[stage - 1];
  if (p->cluster->executor.replicas > 1)
    cost->update_ns +=
        message_ns(p, stage, cost->gradient_bytes, true) + message_ns(p, stage, cost->gradient_bytes, false);
  if (stage > 1 && p->device_of[stage - 1] != p->device_of[stage - 2]) {
    cost->forward_ns += message_ns(p, stage, costs[stage - 2].forward_bytes, false);
    cost->backward_ns += message_ns(p, stage, cost->backward_bytes, true);
  }
  if (stage < p->plan->stages && p->device_of[stage - 1] != p->device_of[stage]) {
    cost->forward_ns += message_ns(p, stage, cost->forward_bytes, true);
    cost->backward_ns += message_ns(p, stage, costs[stage].backward_bytes, false);
  }
}

/* Scales the costs of stage j (from 0) to a statistic of the profile, mixed with a share of the mean. The costs are the
 * means of the profile at the speed of a device. The share is 0 for quartiles; for PETRA_PROFILE_ALONE it is the share
 * of the other ranks that compute. */
static petra_status scale_cost(const petra_rank_simulation *p, int j, petra_profile_statistic statistic, double share,
                               petra_stage_cost *cost) {
  petra_stage_cost mean = {0}, other = {0};
  PETRA_TRY(petra_plan_profile_cost(p->plan, j, PETRA_PROFILE_MEAN, &mean));
  PETRA_TRY(petra_plan_profile_cost(p->plan, j, statistic, &other));
  for (int i = 0; i < PETRA_COST_PARTS; i++) {
    const int64_t mixed_ns = other.ns[i] + llround(share * (double)(mean.ns[i] - other.ns[i]));
    cost->ns[i] = mean.ns[i] > 0 ? llround((double)cost->ns[i] * (double)mixed_ns / (double)mean.ns[i]) : mixed_ns;
  }
  if (cost->weight_gradient_ns > cost->backward_ns)
    cost->weight_gradient_ns = cost->backward_ns;
  return PETRA_OK;
}

/* Sets the costs by a statistic and, if they matter, by p->shares. */
static petra_status set_costs(petra_rank_simulation *p, petra_profile_statistic statistic) {
  const petra_executor_virtual_options *given = &p->cluster->executor;
  const petra_profile *profile = p->plan->profile;
  petra_stage_cost *costs = p->variant[statistic].costs;
  const int32_t stages = p->plan->stages;
  for (int32_t j = 0; j < stages; j++) {
    costs[j] = *petra_executor_virtual_cost(given, j + 1);
    if (statistic != PETRA_PROFILE_MEAN)
      PETRA_TRY(scale_cost(p, j, statistic, 0, &costs[j]));
    if (p->shares)
      PETRA_TRY(scale_cost(p, j, PETRA_PROFILE_ALONE, p->shares[p->device_of[j] - 1], &costs[j]));
  }
  for (int32_t stage = 1; stage <= stages && p->device_of && profile && profile->messages > 0; stage++)
    add_messages(p, stage, costs);
  return PETRA_OK;
}

static void set_link(petra_rank_simulation *p, petra_profile_statistic statistic) {
  const petra_profile *profile = p->plan->profile;
  variant *v = &p->variant[statistic];
  for (int32_t i = 0; i < profile->messages; i++) {
    const petra_profile_message *m = &profile->message[i];
    v->shared_ns[i] = petra_nanoseconds(petra_spread_at(&m->time, statistic));
    v->ns[i] = profile->has_alone ? petra_nanoseconds(petra_spread_at(&m->alone, statistic)) : v->shared_ns[i];
  }
  v->times = (petra_link_times){profile->messages, p->bytes, v->ns};
  v->shared = (petra_link_times){profile->messages, p->bytes, v->shared_ns};
  v->executor.fabric.times = &v->times;
  v->executor.fabric.shared = profile->has_alone ? &v->shared : NULL;
  v->executor.fabric.latency_ns = v->ns[0];
}

static petra_status set_variant(petra_rank_simulation *p, petra_profile_statistic statistic) {
  const int32_t stages = p->plan->stages;
  variant *v = &p->variant[statistic];
  PETRA_TRY(petra_allocate(&v->costs, (size_t)stages, sizeof *v->costs));
  v->executor = p->cluster->executor;
  v->executor.costs = v->costs;
  v->executor.cost_count = stages;
  PETRA_TRY(set_costs(p, statistic));
  if (!p->device_of)
    return PETRA_OK;
  v->executor.engines = 1;
  v->executor.rule.early = false; /* stages on tensors recompute together with their backward */
  if (p->measured_link)
    set_link(p, statistic);
  return PETRA_OK;
}

/* --- the order --- */

static int32_t device_in_plan(const petra_rank_simulation *p, const petra_action *action) {
  return petra_program_device(&p->plan->program, action->stage);
}

/* A device that is alone in its rank does the actions that start together in one step. */
static petra_status starting(petra_observer *base, int64_t now_ns, const petra_action *actions, int count) {
  petra_rank_simulation *p = (petra_rank_simulation *)base;
  (void)now_ns;
  for (int i = 0; i < count; i++) {
    order *o = &p->orders[p->device_of[actions[i].stage - 1] - 1];
    const bool joined = p->ranks == petra_program_devices(&p->plan->program) && p->cluster->executor.engines == 1 &&
                        i + 1 < count && device_in_plan(p, &actions[i]) == device_in_plan(p, &actions[i + 1]);
    PETRA_TRY(petra_array_reserve(&o->actions, &o->capacity, o->count + 1, sizeof *o->actions));
    o->actions[o->count++] = (petra_schedule_entry){.action = actions[i], .joined = joined};
  }
  return PETRA_OK;
}

/* The program over the ranks; of its options it uses only `data`. */
static bool next(const petra_program_options *options, int32_t device, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  const petra_rank_simulation *p = options->data;
  const order *o = &p->orders[device - 1];
  *round = 0;
  if (cursor->round >= o->count)
    return false;
  cursor->joined = o->actions[cursor->round].joined;
  *out = o->actions[cursor->round++].action;
  return true;
}

/* Finds the shares by runs over the ranks, and sets the costs by these shares. */
static petra_status find_shares(petra_rank_simulation *p, petra_profile_statistic statistic) {
  petra_status status = PETRA_OK;
  for (int32_t r = 0; r < p->ranks; r++)
    p->shares[r] = 1;
  for (int i = 0; i < ROUNDS && status == PETRA_OK; i++) {
    petra_observer *overlap;
    PETRA_TRY(petra_overlap_create(p->device_of, p->ranks, &overlap));
    status = petra_worker_cost_run(&p->variant[statistic].executor, &p->method, &p->options, overlap, NULL);
    petra_overlap_shares(overlap, p->shares);
    petra_overlap_destroy(overlap);
    if (status == PETRA_OK)
      status = set_costs(p, statistic);
  }
  return status;
}

petra_status petra_rank_simulation_order(petra_rank_simulation *p) {
  static const petra_observer_ops ops = {.starting = starting};
  if (p->ordered || !p->device_of)
    return PETRA_OK;
  p->base.ops = &ops;
  p->base.next = NULL;
  PETRA_TRY(petra_worker_cost_run(&p->cluster->executor, &p->plan->method, &p->plan->program, &p->base, NULL));
  p->ordered = true;
  for (int s = PETRA_PROFILE_MEAN; s < STATISTICS && p->shares; s++)
    if (p->variant[s].costs)
      PETRA_TRY(find_shares(p, (petra_profile_statistic)s));
  return PETRA_OK;
}

/* --- runs over the ranks --- */

petra_status petra_rank_simulation_run(petra_rank_simulation *p, petra_profile_statistic statistic,
                                       petra_rank_times *times) {
  PETRA_TRY(petra_rank_simulation_order(p));
  return petra_worker_cost_run(&p->variant[statistic].executor, &p->method, &p->options, &times->base, NULL);
}

bool petra_rank_simulation_has_interval(const petra_rank_simulation *p) {
  const petra_config *config = p->plan->config;
  return config->cluster.cost.model == PETRA_COST_PROFILE && p->plan->profile && p->plan->profile->has_spread;
}

double petra_rank_simulation_high_s(int32_t ranks, double mean_s, double quartile3_s) {
  return ranks > 1 && isfinite(quartile3_s) ? fmax(quartile3_s, mean_s * UNPROFILED) : quartile3_s;
}

bool petra_rank_simulation_measured_link(const petra_rank_simulation *p) {
  return p->measured_link;
}

void petra_rank_simulation_arguments(const petra_rank_simulation *p, const petra_executor_virtual_options **clock,
                                     const petra_program_ops **program, const petra_program_options **options) {
  *clock = &p->variant[PETRA_PROFILE_MEAN].executor;
  *program = &p->program;
  *options = &p->options;
}

/* --- creation --- */

static petra_status place(petra_rank_simulation *p, const int32_t *rank_of, int32_t ranks) {
  const petra_plan *plan = p->plan;
  const petra_config *config = plan->config;
  if (plan->method.program->arrival)
    return petra_config_fail(config, "cluster.placement",
                             "with method %s, which has no fixed order for processes of several stages; expected [], "
                             "or a method with a fixed order",
                             plan->method.name);
  p->ranks = ranks;
  PETRA_TRY(petra_allocate(&p->device_of, (size_t)plan->stages, sizeof *p->device_of));
  PETRA_TRY(petra_allocate(&p->orders, (size_t)ranks, sizeof *p->orders));
  for (int32_t j = 0; j < plan->stages; j++)
    p->device_of[j] = rank_of[j] + 1;
  p->program.next = next;
  p->program.locked = p->program.repeats = false;
  p->options.warmup = 0; /* the order already contains it */
  p->options.data = p;
  p->options.device_of = p->device_of;
  p->options.devices = ranks;
  p->measured_link = plan->profile && plan->profile->messages > 0 && config->cluster.link.latency_s == 0 &&
                     config->cluster.link.bandwidth_Bps == 0 && config->cluster.card_Bps == 0 &&
                     config->cluster.node_link.preset == PETRA_NODE_LINK_SAME;
  if (p->measured_link && config->cluster.link.sharing != PETRA_LINK_FIFO)
    return petra_config_fail(
        config, "cluster.link.sharing",
        "fair with the measured link of the profile, on which messages go one after another; expected fifo");
  for (int32_t i = 0; plan->profile && i < plan->profile->messages; i++)
    p->bytes[i] = plan->profile->message[i].bytes;
  return PETRA_OK;
}

petra_status petra_rank_simulation_create(const petra_plan *plan, const petra_cluster *cluster, const int32_t *rank_of,
                                          int32_t ranks, petra_rank_simulation **out) {
  petra_rank_simulation *p;
  PETRA_TRY(petra_allocate(&p, 1, sizeof *p));
  *out = p;
  p->plan = plan;
  p->cluster = cluster;
  p->program = *plan->method.program;
  p->method = plan->method;
  p->method.program = &p->program;
  p->options = plan->program;
  if (rank_of)
    PETRA_TRY(place(p, rank_of, ranks));
  PETRA_TRY(set_variant(p, PETRA_PROFILE_MEAN));
  for (int s = PETRA_PROFILE_QUARTILE1; s < STATISTICS && petra_rank_simulation_has_interval(p); s++)
    PETRA_TRY(set_variant(p, (petra_profile_statistic)s));
  if (rank_of && ranks > 1 && plan->profile && plan->profile->has_alone)
    PETRA_TRY(petra_allocate(&p->shares, (size_t)ranks, sizeof *p->shares));
  return PETRA_OK;
}

void petra_rank_simulation_destroy(petra_rank_simulation *p) {
  if (!p)
    return;
  for (int32_t r = 0; p->orders && r < p->ranks; r++)
    petra_free(p->orders[r].actions);
  for (int s = 0; s < STATISTICS; s++)
    petra_free(p->variant[s].costs);
  PETRA_FREE_ALL(p->orders, p->device_of, p->shares, p);
}
