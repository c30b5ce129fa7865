/* SPDX-License-Identifier: Apache-2.0 */
/* petra-arrival executed by ranks that are threads, with random pauses and a wire that delays: no rank waits for ever, no more
 * microbatches are in flight than the credit, and what was done, put into one order, gives the same losses, evaluation and
 * weights, bit for bit, where it is emulated. */
#include "base/mem.h"
#include "exec/transport.h"
#include "harness.h"
#include "record/action_log.h"
#include "schedule/schedule.h"
#include "tolerances.h"
#include "training.h"
#include "wire_threads.h"

#include <pthread.h>
#include <unistd.h>

enum { RANKS_MAX = 4, MICROBATCHES = 20, ROWS_MAX = 10 * 4 * MICROBATCHES, SETS = 14, SKEW_NS = 200000000 };

#define NETWORK                                                                                                        \
  "model.depth=18", "model.width=1", "data.batch=2", "device.threads=1", "device.backend=ref", "optim.lr=0.05",        \
      "run.max_microbatches=20", "data.limit=16", "method.name=petra-arrival", "run.checkpoint_every=0"

/* One executed run. */
typedef struct game {
  int ranks;
  int64_t credit, accumulate, eval_every;
  bool split;
  char text[5][64]; /* settings that differ from run to run */
  const char *sets[SETS];
} game;

typedef struct player {
  const game *game;
  petra_ranks ranks;
  training run;
  bool opened;
  petra_status status;
  pthread_t thread;
  petra_trace_row rows[ROWS_MAX];
  int64_t count;
} player;

static petra_status keep(void *context, const petra_trace_row *row) {
  player *p = context;
  if (p->count == ROWS_MAX)
    return petra_fail(PETRA_INTERNAL, "more actions than there are");
  p->rows[p->count++] = *row;
  return PETRA_OK;
}

static petra_status play(player *p) {
  PETRA_TRY(training_open_rank(&p->run, &p->ranks, p->game->sets, SETS));
  p->opened = true;
  p->run.sink = keep;
  p->run.context = p;
  PETRA_TRY(training_run(&p->run));
  return petra_ranks_agree(&p->ranks, PETRA_OK, NULL); /* nobody leaves before */
}

static void *run_player(void *context) {
  player *p = context;
  p->status = play(p);
  if (p->status != PETRA_OK) /* the others would wait until they give up */
    fprintf(stderr, "%s: %s\n", p->ranks.name, harness_line);
  return NULL;
}

static void draw(game *g, unsigned seed) {
  static const int64_t credits[] = {0, 1, 3, 7, 19};
  static const char *const network[] = {NETWORK};
  _Static_assert(sizeof network / sizeof *network + 4 == SETS, "the settings that differ, but for the schedule");
  int count = 0;
  g->ranks = 1 + rand_r(&seed) % RANKS_MAX;
  g->credit = credits[rand_r(&seed) % HARNESS_COUNT(credits)];
  g->accumulate = rand_r(&seed) % 2 ? 1 : 3;
  g->eval_every = rand_r(&seed) % 4 > 0;
  g->split = rand_r(&seed) % 2;
  for (; count < HARNESS_COUNT(network); count++)
    g->sets[count] = network[count];
  snprintf(g->text[0], sizeof g->text[0], "method.credit=%lld", (long long)g->credit);
  snprintf(g->text[1], sizeof g->text[1], "method.accumulate=%lld", (long long)g->accumulate);
  snprintf(g->text[2], sizeof g->text[2], "run.eval_every=%lld", (long long)g->eval_every);
  snprintf(g->text[3], sizeof g->text[3], "method.head=%s", g->split ? "split" : "fused");
  for (int i = 0; i < 4; i++)
    g->sets[count++] = g->text[i];
}

/* --- the order --- */

static const petra_program_options *program_of(const player *players) {
  return &players[0].run.plan->program;
}

/* The most microbatches that stage 1 had read and that had not come back. */
static int64_t max_in_flight(const petra_trace_row *rows, int64_t count) {
  int64_t now = 0, maximum = 0;
  for (int64_t i = 0; i < count; i++) {
    const petra_action *a = &rows[i].action;
    now += a->stage == 1 && a->kind == PETRA_ACTION_FORWARD;
    maximum = now > maximum ? now : maximum;
    now -= a->stage == 1 && a->kind == PETRA_ACTION_BACKWARD;
  }
  return maximum;
}

/* Every pass has its message sent before it. */
static bool has_its_messages(const petra_trace_row *rows, int64_t count, int32_t stages, bool split) {
  static bool done[2][11][MICROBATCHES]; /* F, B; by stage from 1 */
  memset(done, 0, sizeof done);
  for (int64_t i = 0; i < count; i++) {
    const petra_action *a = &rows[i].action;
    const int64_t m = a->microbatch;
    const bool fused = a->stage == stages && !split, backward = a->kind == PETRA_ACTION_BACKWARD;
    if (!backward && a->kind != PETRA_ACTION_FORWARD)
      continue;
    if ((!backward || fused) && a->stage > 1 && !done[0][a->stage - 1][m])
      return false;
    if (backward && a->stage < stages && !done[1][a->stage + 1][m])
      return false;
    done[backward][a->stage][m] = true;
  }
  return true;
}

/* F of a stage begins when at most PETRA_TRANSPORT_AHEAD of its messages wait: the next stage has begun all before. */
static bool waits_for_room(const player *players, int count, int32_t stages, bool split) {
  static int64_t begins_ns[11][MICROBATCHES]; /* F; by stage from 1 */
  for (int r = 0; r < count; r++)
    for (int64_t i = 0; i < players[r].count; i++) {
      const petra_action *a = &players[r].rows[i].action;
      if (a->kind == (a->stage == stages && !split ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD))
        begins_ns[a->stage][a->microbatch] = players[r].rows[i].start_ns;
    }
  for (int32_t j = 1; j < stages; j++)
    for (int64_t m = PETRA_TRANSPORT_AHEAD + 1; m < MICROBATCHES; m++)
      if (begins_ns[j][m] <= begins_ns[j + 1][m - PETRA_TRANSPORT_AHEAD - 1])
        return false;
  return true;
}

static void write_schedule(const char *path, const petra_trace_row *rows, int64_t count, int32_t stages) {
  FILE *file = fopen(path, "w");
  ck_assert(file);
  for (int32_t j = 1; j <= stages; j++) {
    fprintf(file, "%d:", j);
    for (int64_t i = 0; i < count; i++)
      if (rows[i].action.stage == j) {
        char text[40];
        petra_action_print(&rows[i].action, text, sizeof text);
        fprintf(file, " %s", text);
      }
    fprintf(file, "\n");
  }
  ck_assert_int_eq(fclose(file), 0);
}

/* Of all players, in one order, although their clocks differ by up to twice SKEW_NS. */
static petra_trace_row *merge_rows(player *players, int count, int64_t *total) {
  int64_t first[RANKS_MAX + 1] = {0};
  petra_trace_row *rows;
  for (int r = 0; r < count; r++)
    first[r + 1] = first[r] + players[r].count;
  *total = first[count];
  must(petra_allocate(&rows, (size_t)*total, sizeof *rows));
  for (int r = 0; r < count; r++)
    for (int64_t i = 0; i < players[r].count; i++) {
      rows[first[r] + i] = players[r].rows[i];
      rows[first[r] + i].start_ns += r % 2 ? SKEW_NS : -SKEW_NS;
    }
  must(petra_merge_actions(rows, first, count, program_of(players)));
  return rows;
}

/* --- beside the emulation --- */

static void same_as_emulated(const game *g, player *players, const char *path, unsigned seed) {
  const char *sets[SETS];
  char schedule[96];
  training emulated;
  training_tensors expected;
  const training *last = &players[g->ranks - 1].run;
  memcpy(sets, g->sets, sizeof sets);
  snprintf(schedule, sizeof schedule, "method.schedule=%s", path);
  for (int i = 0; i < SETS; i++)
    if (strncmp(sets[i], "method.credit", 13) == 0)
      sets[i] = schedule;
  must(training_open(&emulated, sets, SETS));
  must(training_run(&emulated));
  must(training_weights(&emulated, &expected));
  ck_assert_int_eq(last->loss_count, MICROBATCHES);
  for (int64_t m = 0; m < MICROBATCHES; m++)
    ck_assert_msg(last->losses[m] == emulated.losses[m], "run %u: another loss of microbatch %lld", seed, (long long)m);
  ck_assert_int_eq(last->evaluation.images, emulated.evaluation.images);
  ck_assert_int_eq(last->evaluation.images, g->eval_every ? 16 : 0);
  ck_assert(last->evaluation.loss == emulated.evaluation.loss && last->evaluation.top1 == emulated.evaluation.top1);
  int at = 0;
  for (int r = 0; r < g->ranks; r++) {
    training_tensors found;
    must(training_weights(&players[r].run, &found));
    for (int i = 0; i < found.count; i++, at++) {
      const training_tensor *x = &found.tensor[i], *y = &expected.tensor[at];
      ck_assert_str_eq(x->name, y->name);
      ck_assert_msg(memcmp(x->values, y->values, (size_t)x->elements * sizeof *x->values) == 0, "run %u: another %s",
                    seed, x->name);
    }
    training_tensors_fini(&found);
  }
  ck_assert_int_eq(at, expected.count);
  training_tensors_fini(&expected);
  training_close(&emulated);
}

static void execute(const game *g, player *players, unsigned seed) {
  petra_wire *wires[RANKS_MAX];
  wire_threads_create(g->ranks, seed, wires);
  for (int r = 0; r < g->ranks; r++) {
    player *p = &players[r];
    *p = (player){.game = g,
                  .status = PETRA_INTERNAL,
                  .ranks = {.wire = wires[r], .rank = r, .count = g->ranks, .host = "here", .timeout_s = 20}};
    snprintf(p->ranks.name, sizeof p->ranks.name, "rank %d (here)", r);
    must(petra_progress_thread_create(wires[r], p->ranks.name, INT64_C(20000000000), &p->ranks.progress));
  }
  for (int r = 0; r < g->ranks; r++)
    ck_assert_int_eq(pthread_create(&players[r].thread, NULL, run_player, &players[r]), 0);
  for (int r = 0; r < g->ranks; r++)
    pthread_join(players[r].thread, NULL);
  for (int r = 0; r < g->ranks; r++)
    ck_assert_msg(players[r].status == PETRA_OK, "run %u, rank %d of %d", seed, r, g->ranks);
}

static void leave(const game *g, player *players) {
  for (int r = 0; r < g->ranks; r++) {
    training_close(&players[r].run);
    petra_progress_thread_destroy(players[r].ranks.progress);
  }
  for (int r = 0; r < g->ranks; r++)
    petra_wire_destroy(players[r].ranks.wire);
}

START_TEST(random_runs) {
  const int runs = getenv("PETRA_TEST_ARRIVAL") ? atoi(getenv("PETRA_TEST_ARRIVAL")) : 8;
  char path[] = "arrival_schedule_XXXXXX", pauses[32];
  player *players;
  const int descriptor = mkstemp(path);
  ck_assert_int_ge(descriptor, 0);
  close(descriptor);
  must(petra_allocate(&players, RANKS_MAX, sizeof *players));
  for (unsigned seed = 1; seed <= (unsigned)runs; seed++) {
    game g;
    int64_t count;
    draw(&g, seed);
    snprintf(pauses, sizeof pauses, "%u:%d", seed, seed % 3 ? 3000 : 0);
    ck_assert_int_eq(setenv("PETRA_TEST_DELAYS", pauses, 1), 0);
    execute(&g, players, seed);
    unsetenv("PETRA_TEST_DELAYS");
    petra_trace_row *rows = merge_rows(players, g.ranks, &count);
    const int32_t stages = program_of(players)->stages;
    ck_assert_msg(has_its_messages(rows, count, stages, g.split), "run %u: a message is taken before it is sent", seed);
    if (g.credit > 0)
      ck_assert_msg(max_in_flight(rows, count) <= g.credit, "run %u: %lld in flight with a credit of %lld", seed,
                    (long long)max_in_flight(rows, count), (long long)g.credit);
    ck_assert_msg(waits_for_room(players, g.ranks, stages, g.split), "run %u: messages pile up", seed);
    write_schedule(path, rows, count, stages);
    petra_free(rows);
    same_as_emulated(&g, players, path, seed);
    leave(&g, players);
  }
  petra_free(players);
  unlink(path);
}
END_TEST

/* Two ranks whose first actions wait for one another. */
START_TEST(what_has_no_order) {
  const petra_program_options options = {.stages = 2, .microbatches = 2, .split_head = true};
  petra_trace_row rows[] = {{.action = {1, PETRA_ACTION_FORWARD, 0}, .start_ns = 5},
                            {.action = {1, PETRA_ACTION_BACKWARD, 0}, .start_ns = 6},
                            {.action = {2, PETRA_ACTION_FORWARD, 0}, .start_ns = 1},
                            {.action = {2, PETRA_ACTION_BACKWARD, 0}, .start_ns = 2}};
  const int64_t first[] = {0, 2, 4};
  must(petra_merge_actions(rows, first, 2, &options));
  ck_assert(rows[0].action.stage == 1 && rows[1].action.stage == 2 && rows[2].action.stage == 2);
  rows[0].action = (petra_action){1, PETRA_ACTION_BACKWARD, 1};
  rows[1].action = (petra_action){1, PETRA_ACTION_FORWARD, 1};
  rows[2].action = (petra_action){2, PETRA_ACTION_FORWARD, 1};
  rows[3].action = (petra_action){2, PETRA_ACTION_BACKWARD, 1};
  harness_clear();
  ck_assert_int_eq(petra_merge_actions(rows, first, 2, &options), PETRA_INTERNAL);
  ck_assert_logged("have no common order");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {random_runs, what_has_no_order};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int status = harness_run("arrival", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return status;
}
