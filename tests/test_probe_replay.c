/* SPDX-License-Identifier: Apache-2.0 */
/* A probe whose stages are elsewhere (probe/probe_tap.h, probe_replay.h): several taps, whose parcels come late and at random,
 * and the rows that an emulated run's own probe finds, bit for bit. */
#include "base/mem.h"
#include "harness.h"
#include "checkpoint/checkpoint_file.h"
#include "probe/execution_probe.h"
#include "tolerances.h"
#include "training.h"

#include "backend/ops.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 4, STAGES = 10 };

#define NETWORK                                                                                                        \
  "model.depth=18", "model.width=1", "data.batch=2", "device.threads=1", "device.backend=ref",                         \
      "device.precision=fp64", "optim.lr=0.05", "run.max_microbatches=30", "data.limit=32", "probe.per_epoch=4"

/* Rows one behind the other, as numbers. */
typedef struct rows {
  double *values;
  int64_t count, capacity;
  int rows;
} rows;

typedef struct parcel {
  struct parcel *next;
  size_t bytes;
  unsigned char data[];
} parcel;

/* What stands for another process: some of the stages, and what it has sent. */
typedef struct end {
  struct rig *rig;
  petra_stage *some[STAGES];
  petra_probe_tap *tap;
  parcel *first, **last, *room;
} end;

typedef struct rig {
  petra_worker base;
  petra_worker *whole;
  training *run;
  int ranks;
  int32_t rank_of[STAGES];
  end ends[RANKS_MAX];
  petra_stage_observer counter; /* the last one in the run's list, which those of the taps follow */
  petra_stage_observer *groups; /* a list */
  petra_probe_replay *replay;
  petra_probe *probe;
  rows own, replayed;
  unsigned seed;
  int lost;        /* this parcel is not delivered; 0: none */
  int sent, waits; /* parcels; how often the probe was behind */
  int64_t cut;     /* when so many actions are done the probe goes through a checkpoint; 0: never */
  int next_ranks;  /* from there on */
  petra_action *past;
  int *past_counts; /* of the groups of these */
  int64_t past_actions, past_groups, past_capacity, counts_capacity, read;
} rig;

/* --- rows --- */

static petra_status keep(rows *kept, const double *values, int64_t count) {
  PETRA_TRY(petra_array_reserve(&kept->values, &kept->capacity, kept->count + count, sizeof *values));
  memcpy(kept->values + kept->count, values, (size_t)count * sizeof *values);
  kept->count += count;
  return PETRA_OK;
}

static petra_status keep_row(const rig *r, rows *kept, const petra_probe_row *row) {
  const int64_t measures = PETRA_MEASURES * PETRA_PAIRS;
  const double microbatch = (double)row->microbatch;
  kept->rows++;
  PETRA_TRY(keep(kept, &microbatch, 1));
  PETRA_TRY(keep(kept, row->stage, measures * row->stages));
  PETRA_TRY(keep(kept, row->concatenated, (int64_t)PETRA_PAIRS * row->stages));
  PETRA_TRY(keep(kept, row->reconstruction, row->stages));
  PETRA_TRY(keep(kept, row->parameter, measures * row->parameters));
  for (int g = 0; g < PETRA_GRADIENTS && row->gradients[g]; g++)
    for (int b = 0; b < r->run->plan->model.block_count; b++)
      for (int i = 0; i < row->gradients[g][b].count; i++) {
        const petra_tensor *tensor = row->gradients[g][b].tensor[i];
        PETRA_TRY(petra_array_reserve(&kept->values, &kept->capacity, kept->count + tensor->elements, sizeof(double)));
        PETRA_TRY(petra_op_download(r->run->network->backend, tensor, kept->values + kept->count, PETRA_HOST_F64));
        kept->count += tensor->elements;
      }
  return PETRA_OK;
}

static petra_status keep_own(void *context, const petra_probe_row *row) {
  rig *r = context;
  return keep_row(r, &r->own, row);
}

static petra_status keep_replayed(void *context, const petra_probe_row *row) {
  rig *r = context;
  return keep_row(r, &r->replayed, row);
}

/* --- parcels --- */

static petra_status room(void *context, size_t bytes, void **buffer) {
  end *e = context;
  PETRA_TRY(petra_allocate(&e->room, 1, sizeof *e->room + bytes));
  e->room->bytes = bytes;
  *buffer = e->room->data;
  return PETRA_OK;
}

static petra_status send(void *context, size_t bytes) {
  end *e = context;
  ck_assert_uint_eq(bytes, e->room->bytes);
  if (++e->rig->sent == e->rig->lost) {
    petra_free(e->room);
    e->room = NULL;
    return PETRA_OK;
  }
  *e->last = e->room;
  e->last = &e->room->next;
  e->room = NULL;
  return PETRA_OK;
}

static petra_status peek(void *context, int rank, bool wait, const void **data, size_t *size) {
  rig *r = context;
  const parcel *first = r->ends[rank].first;
  const bool late = !wait && rand_r(&r->seed) % 4 == 0; /* rank 0 looks again later */
  ck_assert_msg(first || !wait, "what is waited for was not sent");
  *data = first && !late ? first->data : NULL;
  *size = first ? first->bytes : 0;
  return PETRA_OK;
}

static petra_status done(void *context, int rank) {
  end *e = &((rig *)context)->ends[rank];
  parcel *first = e->first;
  e->first = first->next;
  if (!e->first)
    e->last = &e->first;
  petra_free(first);
  return PETRA_OK;
}

static void create_ends(rig *r) {
  const petra_plan *plan = r->run->plan;
  for (int p = 0; p < r->ranks; p++) {
    end *e = &r->ends[p];
    e->rig = r;
    e->last = &e->first;
    for (int32_t j = 0; j < plan->stages; j++)
      e->some[j] = r->rank_of[j] == p ? r->run->network->stage[j] : NULL;
    const petra_probe_tap_options options = petra_execution_probe_tap_of(
        plan, r->run->network->backend, (petra_stages){plan->stages, e->some}, 0, (petra_parcel_outlet){e, room, send});
    must(petra_probe_tap_create(&options, &e->tap));
    PETRA_OBSERVERS_ADD(petra_stage_observer, &r->counter.next, petra_probe_tap_observer(e->tap));
    PETRA_OBSERVERS_ADD(petra_stage_observer, &r->groups, petra_probe_tap_groups(e->tap));
  }
}

static void create_probe(rig *r) {
  const petra_plan *plan = r->run->plan;
  const petra_probe_replay_options options =
      petra_execution_probe_replay_of(plan, r->run->network->backend, r->rank_of, (petra_parcel_inlet){r, peek, done});
  must(petra_probe_replay_create(&options, &r->replay));
  const petra_probe_options probe = {.backend = r->run->network->backend,
                                     .model = &plan->model,
                                     .partition = &plan->partition,
                                     .replicas = 1,
                                     .source = petra_probe_replay_source(r->replay),
                                     .program = plan->method.program,
                                     .program_options = &plan->program,
                                     .per_epoch = plan->config->probe.per_epoch,
                                     .gradients = plan->config->probe.gradients,
                                     .context = r,
                                     .row = keep_replayed};
  must(petra_probe_create(&probe, &r->probe));
  petra_probe_replay_set_probe(r->replay, r->probe);
  PETRA_OBSERVERS_ADD(petra_stage_observer, &r->groups, petra_probe_replay_groups(r->replay));
}

static void destroy_ends(rig *r) {
  for (int p = 0; p < r->ranks; p++) {
    petra_probe_tap_destroy(r->ends[p].tap);
    while (r->ends[p].first)
      must(done(r, p));
    r->ends[p] = (end){0};
  }
  petra_probe_replay_destroy(r->replay);
  petra_probe_destroy(r->probe);
  r->counter.next = r->groups = NULL;
}

static void place(rig *r, int ranks) {
  r->ranks = ranks;
  for (int32_t j = 0; j < r->run->plan->stages; j++)
    r->rank_of[j] = j * ranks / r->run->plan->stages;
}

static petra_status archive_probe(rig *r, petra_archive *archive) {
  petra_account *accounts[] = {petra_probe_account(r->probe)};
  petra_tensor_archive tensors = {.archive = archive,
                                  .backend = r->run->network->backend,
                                  .accounts = accounts,
                                  .account_count = 1,
                                  .read = r->read,
                                  .fused = !r->run->plan->program.split_head};
  petra_status status = petra_probe_archive(r->probe, &tensors);
  petra_tensor_archive_fini(&tensors);
  return status;
}

/* Everything is made anew, with other ranks, and goes on from what the probe had. */
static petra_status go_through_checkpoint(rig *r) {
  char path[] = "probe_replay_XXXXXX";
  petra_archive *archive;
  const int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  close(file);
  must(petra_probe_replay_advance(r->replay, true));
  ck_assert(petra_probe_is_open(r->probe)); /* else there is nothing to see */
  must(petra_checkpoint_create(path, "", &archive));
  must(archive_probe(r, archive));
  must(petra_checkpoint_write(archive));
  petra_checkpoint_destroy(archive);
  destroy_ends(r);
  place(r, r->next_ranks);
  create_ends(r);
  create_probe(r);
  must(petra_checkpoint_open(path, &archive));
  must(archive_probe(r, archive));
  petra_checkpoint_destroy(archive);
  unlink(path);
  int64_t at = 0;
  for (int64_t g = 0; g < r->past_groups; at += r->past_counts[g++]) {
    for (int p = 0; p < r->ranks; p++)
      must(petra_probe_tap_pass(r->ends[p].tap, r->past + at, r->past_counts[g]));
    must(petra_probe_replay_pass(r->replay, r->past + at, r->past_counts[g]));
  }
  r->cut = 0;
  return PETRA_OK;
}

/* --- the run --- */

static petra_status count_read(petra_stage_observer *base, int64_t microbatch, const petra_tensor *images,
                               const int32_t *labels, int32_t count) {
  (void)microbatch;
  (void)images;
  (void)labels;
  (void)count;
  ((rig *)(void *)((char *)base - offsetof(rig, counter)))->read++;
  return PETRA_OK;
}

static petra_status remember(rig *r, const petra_action *actions, int count) {
  PETRA_TRY(petra_array_reserve(&r->past, &r->past_capacity, r->past_actions + count, sizeof *r->past));
  PETRA_TRY(petra_array_reserve(&r->past_counts, &r->counts_capacity, r->past_groups + 1, sizeof *r->past_counts));
  memcpy(r->past + r->past_actions, actions, (size_t)count * sizeof *actions);
  r->past_actions += count;
  r->past_counts[r->past_groups++] = count;
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  rig *r = (rig *)base;
  if (r->cut > 0 && r->past_actions >= r->cut)
    PETRA_TRY(go_through_checkpoint(r));
  PETRA_TRY(remember(r, actions, count));
  PETRA_NOTIFY(petra_stage_observer, r->groups, begins, observer, virtual_ns, actions, count);
  PETRA_TRY(r->whole->ops->perform(r->whole, virtual_ns, actions, count, results));
  PETRA_NOTIFY(petra_stage_observer, r->groups, done, observer);
  r->waits += petra_probe_replay_waits(r->replay);
  return rand_r(&r->seed) % 3 == 0 ? petra_probe_replay_advance(r->replay, false) : PETRA_OK;
}

static petra_worker *wrap(void *context, petra_worker *whole) {
  static const petra_worker_ops ops = {.perform = perform};
  rig *r = context;
  r->base.ops = &ops;
  r->whole = whole;
  return &r->base;
}

static void rig_open(rig *r, training *run, int ranks, unsigned seed) {
  static const petra_stage_observer_ops ops = {.read = count_read};
  *r = (rig){.run = run, .counter = {.ops = &ops}, .seed = seed};
  ck_assert_int_le(run->plan->stages, STAGES);
  place(r, ranks);
  petra_run_observe_stages(run->run, &r->counter);
  run->probe_row = keep_own;
  run->context = r;
  create_ends(r);
  create_probe(r);
  petra_run_wrap(run->run, wrap, r);
}

static void rig_close(rig *r) {
  destroy_ends(r);
  petra_free(r->own.values);
  petra_free(r->replayed.values);
  petra_free(r->past);
  petra_free(r->past_counts);
}

static void finds_the_same(const char *const *settings, int count, int ranks, int64_t cut) {
  const char *sets[24] = {NETWORK};
  int n = 0;
  training run;
  rig r;
  while (sets[n])
    n++;
  for (int i = 0; i < count && settings[i]; i++)
    sets[n++] = settings[i];
  must(training_open(&run, sets, n));
  rig_open(&r, &run, ranks, 7U * (unsigned)ranks);
  r.cut = cut;
  r.next_ranks = ranks % 4 + 1;
  must(training_run(&run));
  must(petra_probe_replay_advance(r.replay, true));
  must(petra_probe_finish(r.probe));
  ck_assert_int_eq(r.cut, 0);
  for (int p = 0; p < r.ranks; p++)
    ck_assert_msg(!r.ends[p].first, "%s: a parcel of rank %d was left", settings[0], p);
  ck_assert_int_gt(r.own.rows, 0);
  ck_assert_int_eq(r.own.rows, r.replayed.rows);
  ck_assert_int_gt(r.waits, 0);
  ck_assert_int_eq(r.own.count, r.replayed.count);
  ck_assert_msg(memcmp(r.own.values, r.replayed.values, (size_t)r.own.count * sizeof(double)) == 0,
                "%s on %d ranks: other rows", settings[0], ranks);
  rig_close(&r);
  training_close(&run);
}

START_TEST(rows_are_those_of_an_emulated_run) {
  static const char *const cases[][5] = {
      {"method.name=petra", "method.accumulate=1", "probe.gradients=true"},
      {"method.name=petra", "method.accumulate=3", "cluster.jitter.model=gamma", "run.drain=true"},
      {"method.name=petra", "method.accumulate=2", "method.head=split", "stages.partition=list",
       "stages.blocks=[1,4,3,2]"},
      {"method.name=1f1b", "method.accumulate=4", "cluster.jitter.model=gamma"},
      {"method.name=interleaved", "method.accumulate=5", "probe.gradients=true"},
      {"method.name=zb-h1", "method.accumulate=3", "cluster.engines=2"},
      {"method.name=pipedream-2bw", "method.accumulate=10", "probe.gradients=true"},
      {"method.name=dsp", "method.accumulate=2", "probe.gradients=true"},
      {"method.name=pipedream", "method.accumulate=1", "cluster.jitter.model=gamma"},
      {"method.name=ddg", "method.accumulate=3", "cluster.engines=2"},
      {"method.name=delayed-reversible", "method.accumulate=2", "method.mitigation.spike_compensation=true"},
      {"method.name=petra", "method.accumulate=1", "method.mitigation.weight_prediction=spectrain"},
      {"method.name=pipedream-2bw", "method.accumulate=10", "method.mitigation.weight_prediction=velocity"}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++)
    finds_the_same(cases[i], HARNESS_COUNT(cases[i]), 2 + i % 3, 0);
}
END_TEST

/* The probe's state is all at its rank, and goes on with other ranks. */
START_TEST(rows_after_a_checkpoint) {
  static const char *const cases[][4] = {
      {"method.name=petra", "method.accumulate=1", "probe.gradients=true"},
      {"method.name=petra", "method.accumulate=3", "run.drain=true"},
      {"method.name=1f1b", "method.accumulate=4"},
      {"method.name=dsp", "method.accumulate=2", "method.head=split"},
      {"method.name=delayed", "method.accumulate=1", "method.mitigation.weight_prediction=velocity"}};
  static const int64_t cuts[] = {230, 310, 300, 260, 230};
  for (int i = 0; i < HARNESS_COUNT(cases); i++)
    finds_the_same(cases[i], HARNESS_COUNT(cases[i]), 2 + i % 3, cuts[i]);
}
END_TEST

/* A tap and the probe that go by other orders are found out: nothing is taken for something else. */
START_TEST(a_parcel_that_is_missing) {
  for (int lost = 1; lost < 60; lost += 7) {
    training run;
    rig r;
    must(TRAINING_OPEN(&run, NETWORK, "method.name=petra", "method.accumulate=1"));
    rig_open(&r, &run, 2, 1);
    r.lost = lost;
    harness_clear();
    petra_status status = training_run(&run);
    ck_assert_msg(status == PETRA_INTERNAL, "status %d without parcel %d of %d", (int)status, lost, r.sent);
    ck_assert_logged("probe");
    ck_assert_int_eq(harness_lines, 1);
    rig_close(&r);
    training_close(&run);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {rows_are_those_of_an_emulated_run, rows_after_a_checkpoint, a_parcel_that_is_missing};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int status = harness_run("probe replay", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return status;
}
