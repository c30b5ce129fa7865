/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread over a wire between threads: random orders, sizes and pauses never block, mix up or pile up
 * messages, and ranks that agree on a checkpoint write it at one position. */
#include "base/clock.h"
#include "base/mem.h"
#include "harness.h"
#include "group/progress_thread.h"
#include "wire_threads.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define must(expression) ck_assert_int_eq((expression), PETRA_OK)

enum { RANKS_MAX = 5, MICROBATCHES_MAX = 40, AHEAD = 2 };

/* Rank r sends microbatch m up to rank r + 1 (F), and, once the last rank had it, down (B). An order of all these
 * actions in which each has its input, drawn at random: the schedule. */
typedef struct step {
  int rank, microbatch;
  bool backward;
} step;

typedef struct game {
  int ranks, microbatches, count;
  unsigned seed;
  size_t size[2][RANKS_MAX]; /* of the messages up from, and down from, a rank */
  step order[2 * RANKS_MAX * MICROBATCHES_MAX];
  int maximum[2][RANKS_MAX]; /* messages for a rank that wait at once by the order, from below and from above */
} game;

typedef struct player {
  const game *game;
  petra_wire *wire;
  pthread_t thread;
  bool ok;
  int64_t agreed[2 * RANKS_MAX * MICROBATCHES_MAX]; /* positions of checkpoints */
  int agreements;
} player;

/* Draws the order: any action that has its input may be next. Microbatches go up in order; they come down in any. */
static void draw(game *g) {
  int up[RANKS_MAX] = {0}, waiting[2][RANKS_MAX] = {{0}};
  bool down[RANKS_MAX][MICROBATCHES_MAX] = {{false}};
  g->count = 0;
  while (g->count < 2 * g->ranks * g->microbatches) {
    const int r = rand_r(&g->seed) % g->ranks, last = g->ranks - 1;
    if (rand_r(&g->seed) % 2 == 0) {
      if (up[r] == g->microbatches || (r > 0 && up[r] == up[r - 1]))
        continue;
      g->order[g->count++] = (step){r, up[r]++, false};
      if (r > 0)
        waiting[0][r]--;
      if (r < last && ++waiting[0][r + 1] > g->maximum[0][r + 1])
        g->maximum[0][r + 1] = waiting[0][r + 1];
      continue;
    }
    const int m = rand_r(&g->seed) % g->microbatches;
    if (down[r][m] || (r == last ? m >= up[r] : !down[r + 1][m]))
      continue;
    down[r][m] = true;
    g->order[g->count++] = (step){r, m, true};
    if (r < last)
      waiting[1][r]--;
    if (r > 0 && ++waiting[1][r - 1] > g->maximum[1][r - 1])
      g->maximum[1][r - 1] = waiting[1][r - 1];
  }
}

static void fill(unsigned char *data, size_t size, int rank, int microbatch, bool backward) {
  for (size_t i = 0; i < size; i++)
    data[i] = (unsigned char)(i * 7 + (size_t)rank * 31 + (size_t)microbatch * 3 + backward);
}

static bool holds(const unsigned char *data, size_t size, int rank, int microbatch, bool backward) {
  for (size_t i = 0; i < size; i++)
    if (data[i] != (unsigned char)(i * 7 + (size_t)rank * 31 + (size_t)microbatch * 3 + backward))
      return false;
  return true;
}

/* Nobody leaves before all are there. */
static petra_status gather(const player *p, petra_progress_thread *progress) {
  char word = 1;
  for (int r = 1; r < p->game->ranks && p->wire->rank == 0; r++)
    PETRA_TRY(petra_progress_thread_get(progress, r, &word, 1));
  for (int r = 1; r < p->game->ranks && p->wire->rank == 0; r++)
    PETRA_TRY(petra_progress_thread_put(progress, r, &word, 1));
  if (p->wire->rank == 0)
    return PETRA_OK;
  PETRA_TRY(petra_progress_thread_put(progress, 0, &word, 1));
  return petra_progress_thread_get(progress, 0, &word, 1);
}

/* Before the step at `position` of the order: stops there if the ranks agree on that position, perhaps more than
 * once. */
static petra_status go(player *p, petra_progress_thread *progress, int64_t position) {
  while (!petra_agreement_may_pass(progress, position + 1)) {
    int64_t agreed;
    petra_agreed end;
    PETRA_TRY(petra_agreement_wait(progress, &agreed, &end));
    if (agreed < position || end != PETRA_AGREED_CONTINUE)
      return petra_fail(PETRA_DATA, "rank %d at %d is to stop at %d", p->wire->rank, (int)position, (int)agreed);
    if (agreed > position)
      break;
    if (p->agreements == 0 || p->agreed[p->agreements - 1] != position)
      p->agreed[p->agreements++] = position;
    PETRA_TRY(gather(p, progress));
    petra_agreement_leave(progress, true);
    nanosleep(&(const struct timespec){0, 1000000}, NULL); /* the next one may be asked for here */
    petra_agreement_leave(progress, false);
  }
  return PETRA_OK;
}

static petra_status play(player *p, petra_progress_thread *progress) {
  const game *g = p->game;
  const int rank = p->wire->rank, last = g->ranks - 1;
  petra_channel *in[2] = {NULL, NULL}, *out[2] = {NULL, NULL}; /* from below and above; up and down */
  int64_t taken[2] = {0, 0};                                   /* by the order, at the receivers of `out` */
  unsigned seed = g->seed + (unsigned)rank;
  if (rank > 0) {
    PETRA_TRY(petra_channel_open_in(progress, rank - 1, 2 * rank, g->size[0][rank - 1], &in[0]));
    PETRA_TRY(petra_channel_open_out(progress, rank - 1, 2 * rank - 1, g->size[1][rank], &out[1]));
  }
  if (rank < last) {
    PETRA_TRY(petra_channel_open_in(progress, rank + 1, 2 * rank + 1, g->size[1][rank + 1], &in[1]));
    PETRA_TRY(petra_channel_open_out(progress, rank + 1, 2 * rank + 2, g->size[0][rank], &out[0]));
  }
  for (int i = 0; i < g->count; i++) {
    const step *s = &g->order[i];
    const int b = s->backward;
    const int receiver = b ? rank - 1 : rank + 1;
    PETRA_TRY(go(p, progress, i));
    if (s->rank != rank) {
      taken[b] += s->rank == receiver;
      continue;
    }
    if (rand_r(&seed) % 8 == 0)
      nanosleep(&(const struct timespec){0, rand_r(&seed) % 1000000}, NULL);
    if (in[b]) {
      const int sender = b ? rank + 1 : rank - 1;
      const void *data;
      size_t size;
      PETRA_TRY(petra_channel_take(in[b], s->microbatch, "a message", &data, &size));
      if (size != g->size[b][sender] || !holds(data, size, sender, s->microbatch, b))
        return petra_fail(PETRA_DATA, "rank %d: microbatch %d came with other bytes", rank, s->microbatch);
      PETRA_TRY(petra_channel_done(in[b], s->microbatch));
    }
    if (out[b]) {
      void *buffer;
      PETRA_TRY(petra_channel_buffer(out[b], taken[b] - AHEAD, "room", &buffer));
      fill(buffer, g->size[b][rank], rank, s->microbatch, b);
      PETRA_TRY(petra_channel_send(out[b], s->microbatch, g->size[b][rank]));
    }
  }
  for (int b = 0; b < 2; b++)
    if (in[b]) { /* what waits by the order, two ahead, and two that are posted */
      const int64_t size = 64 + (int64_t)g->size[b][b ? rank + 1 : rank - 1];
      if (petra_channel_bytes(in[b]) > (g->maximum[b][rank] + AHEAD + 2) * size)
        return petra_fail(PETRA_DATA, "rank %d held %lld messages, by the order %d", rank,
                          (long long)(petra_channel_bytes(in[b]) / size), g->maximum[b][rank]);
    }
  return gather(p, progress); /* all have what was sent to them */
}

static void *run_player(void *context) {
  player *p = context;
  petra_progress_thread *progress;
  p->ok = petra_progress_thread_create(p->wire, "a rank", INT64_C(20000000000), &progress) == PETRA_OK;
  if (p->ok) {
    if (p->game->seed % 2 == 0)
      petra_agreement_start(progress, 1500000, 0);
    p->ok = play(p, progress) == PETRA_OK;
    petra_progress_thread_destroy(progress);
  }
  return NULL;
}

START_TEST(random_orders) {
  const int runs = getenv("PETRA_TEST_CARRIER") ? atoi(getenv("PETRA_TEST_CARRIER")) : 20;
  static const size_t sizes[] = {4, 500, 1024, 1025, 70000};
  int agreements = 0;
  for (int run = 0; run < runs; run++) {
    unsigned seed = 1000 + (unsigned)run;
    game *g;
    player players[RANKS_MAX];
    petra_wire *wires[RANKS_MAX];
    must(petra_allocate(&g, 1, sizeof *g));
    g->ranks = 2 + rand_r(&seed) % (RANKS_MAX - 1);
    g->microbatches = 1 + rand_r(&seed) % MICROBATCHES_MAX;
    for (int i = 0; i < 2 * RANKS_MAX; i++)
      g->size[i % 2][i / 2] = sizes[rand_r(&seed) % HARNESS_COUNT(sizes)];
    g->seed = seed;
    draw(g);
    wire_threads_create(g->ranks, seed, wires);
    for (int r = 0; r < g->ranks; r++) {
      players[r] = (player){.game = g, .wire = wires[r]};
      ck_assert_int_eq(pthread_create(&players[r].thread, NULL, run_player, &players[r]), 0);
    }
    for (int r = 0; r < g->ranks; r++) {
      pthread_join(players[r].thread, NULL);
      ck_assert_msg(players[r].ok, "run %d, rank %d of %d", run, r, g->ranks);
    }
    for (int r = 1; r < g->ranks; r++) { /* all have stopped at the same positions */
      ck_assert_int_eq(players[r].agreements, players[0].agreements);
      ck_assert_mem_eq(players[r].agreed, players[0].agreed, (size_t)players[0].agreements * sizeof(int64_t));
    }
    agreements += players[0].agreements;
    for (int r = 0; r < g->ranks; r++)
      petra_wire_destroy(wires[r]);
    petra_free(g);
  }
  ck_assert_int_gt(agreements, runs);
}
END_TEST

/* The other rank is there and says nothing. */
START_TEST(a_silent_rank) {
  petra_wire *wires[2];
  petra_progress_thread *progress;
  petra_channel *channel;
  const void *data;
  size_t size;
  wire_threads_create(2, 1, wires);
  must(petra_progress_thread_create(wires[0], "rank 0 (here)", 300000000, &progress));
  must(petra_channel_open_in(progress, 1, 0, 16, &channel));
  ck_assert_int_eq(petra_channel_take(channel, 0, "the first message", &data, &size), PETRA_CHILD);
  ck_assert_logged("rank 1 has not been heard of for 0.3 s; rank 0 (here) waited for the first message");
  ck_assert_int_eq(petra_progress_thread_lost(progress), 1);
  ck_assert_int_eq(petra_channel_open_in(progress, 1, petra_progress_thread_channels(progress), 16, &channel),
                   PETRA_UNSUPPORTED);
  petra_progress_thread_destroy(progress);
  petra_wire_destroy(wires[0]);
  petra_wire_destroy(wires[1]);
}
END_TEST

/* The other rank says that it failed. */
START_TEST(a_rank_that_says_so) {
  petra_wire *wires[2];
  petra_progress_thread *threads[2];
  petra_channel *channel;
  const void *data;
  size_t size;
  static const char *const names[] = {"rank 0 (here)", "rank 1 (there)"};
  wire_threads_create(2, 1, wires);
  for (int r = 0; r < 2; r++) {
    must(petra_progress_thread_create(wires[r], names[r], INT64_C(20000000000), &threads[r]));
  }
  must(petra_channel_open_in(threads[0], 1, 0, 16, &channel));
  must(petra_progress_thread_fail(threads[1], 0, PETRA_IO, "the disk is full"));
  ck_assert_int_eq(petra_channel_take(channel, 0, "the first message", &data, &size), PETRA_IO);
  ck_assert_logged("rank 1 (there): the disk is full");
  for (int r = 0; r < 2; r++)
    petra_progress_thread_destroy(threads[r]);
  for (int r = 0; r < 2; r++)
    petra_wire_destroy(wires[r]);
}
END_TEST

/* What a rank does outside of the progress thread, as with a device that hangs. */
typedef struct watched {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int looks, fails_at, gave_up, stuck; /* times */
  petra_status status;                 /* with which it was stuck */
} watched;

static petra_status look(void *context) {
  watched *w = context;
  pthread_mutex_lock(&w->lock);
  const bool fails = ++w->looks == w->fails_at;
  pthread_mutex_unlock(&w->lock);
  return fails ? petra_fail(PETRA_BACKEND, "the device is gone") : PETRA_OK;
}

static void note(watched *w, int *times) {
  pthread_mutex_lock(&w->lock);
  ++*times;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
}

static void on_give_up(void *context) {
  note(context, &((watched *)context)->gave_up);
}

static void on_stuck(void *context, petra_status status) {
  ((watched *)context)->status = status;
  note(context, &((watched *)context)->stuck);
}

static void wait_for(watched *w, const int *times) {
  pthread_mutex_lock(&w->lock);
  while (*times == 0)
    pthread_cond_wait(&w->changed, &w->lock);
  pthread_mutex_unlock(&w->lock);
}

/* The progress thread's thread finds the failure while the rank's own waits for something else, has that end, and, as
 * the rank does not come back (or comes back: ends), ends the run. */
static void watch(int fails_at, bool comes_back, petra_status expected, const char *line) {
  petra_wire *wires[2];
  petra_progress_thread *progress;
  petra_channel *channel;
  const void *data;
  size_t size;
  watched w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, fails_at, 0, 0, PETRA_OK};
  const petra_progress_thread_watch of_device = {.look = look,
                                                 .give_up = on_give_up,
                                                 .stuck = on_stuck,
                                                 .stuck_ns = comes_back ? INT64_C(20000000000) : 20000000,
                                                 .what = "what its device does",
                                                 .context = &w};
  wire_threads_create(2, 1, wires);
  must(petra_progress_thread_create(wires[0], "rank 0 (here)", 700000000, &progress));
  must(petra_channel_open_in(progress, 1, 0, 16, &channel));
  harness_clear();
  petra_progress_thread_watch_set(progress, &of_device);
  wait_for(&w, &w.gave_up);
  if (!comes_back) {
    wait_for(&w, &w.stuck);
    ck_assert_int_eq(w.status, expected);
  }
  ck_assert_int_eq(petra_channel_take(channel, 0, "a message", &data, &size), expected);
  petra_progress_thread_destroy(progress);
  ck_assert_logged(line);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_int_eq(w.gave_up, 1);
  ck_assert_int_eq(w.stuck, !comes_back);
  petra_wire_destroy(wires[0]);
  petra_wire_destroy(wires[1]);
}

/* The rank waits in the progress thread, for a rank that is well but waits for this one's device. */
START_TEST(what_is_watched_while_waiting) {
  petra_wire *wires[2];
  petra_progress_thread *progress;
  petra_channel *channel;
  const void *data;
  size_t size;
  watched w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 2, 0, 0, PETRA_OK};
  const petra_progress_thread_watch of_device = {.look = look,
                                                 .give_up = on_give_up,
                                                 .stuck = on_stuck,
                                                 .stuck_ns = INT64_C(20000000000),
                                                 .what = "what its device does",
                                                 .context = &w};
  wire_threads_create(2, 1, wires);
  must(petra_progress_thread_create(wires[0], "rank 0 (here)", INT64_C(100000000000), &progress));
  must(petra_channel_open_in(progress, 1, 0, 16, &channel));
  harness_clear();
  petra_progress_thread_watch_set(progress, &of_device);
  ck_assert_int_eq(petra_channel_take(channel, 0, "a message", &data, &size), PETRA_BACKEND);
  petra_progress_thread_watch_set(progress, NULL);
  ck_assert_logged("the device is gone");
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_int_eq(w.looks, 2);
  ck_assert_int_eq(w.stuck, 0);
  petra_progress_thread_destroy(progress);
  petra_wire_destroy(wires[0]);
  petra_wire_destroy(wires[1]);
}
END_TEST

START_TEST(what_is_watched_beside) {
  static const char lost[] = "rank 1 has not been heard of for 0.7 s; rank 0 (here) waited for what its device does";
  watch(0, false, PETRA_CHILD, lost);
  watch(0, true, PETRA_CHILD, lost);
  watch(1, false, PETRA_BACKEND, "the device is gone");
  watch(2, true, PETRA_BACKEND, "the device is gone");
}
END_TEST

typedef struct called {
  pthread_t caller;
  bool other; /* in another thread */
  petra_status status;
} called;

static petra_status on_call(void *context) {
  called *c = context;
  c->other = !pthread_equal(c->caller, pthread_self());
  return c->status;
}

/* Whether its thread moves messages or sleeps since something has failed. */
START_TEST(calls_in_the_thread) {
  petra_wire *wires[2];
  petra_progress_thread *progress;
  petra_channel *channel;
  const void *data;
  size_t size;
  wire_threads_create(2, 1, wires);
  must(petra_progress_thread_create(wires[0], "rank 0 (here)", 300000000, &progress));
  must(petra_channel_open_in(progress, 1, 0, 16, &channel));
  for (int lost = 0; lost < 2; lost++)
    for (int status = 0; status < 2; status++) {
      called c = {pthread_self(), false, status ? PETRA_BACKEND : PETRA_OK};
      ck_assert_int_eq(petra_progress_thread_call(progress, on_call, &c), c.status);
      ck_assert(c.other);
      if (status && !lost)
        ck_assert_int_eq(petra_channel_take(channel, 0, "a message", &data, &size), PETRA_CHILD);
    }
  petra_progress_thread_destroy(progress);
  for (int r = 0; r < 2; r++)
    petra_wire_destroy(wires[r]);
}
END_TEST

/* Waiting has an end; there is room for two buffers, and for as many messages as the receiver has done with. */
START_TEST(waiting_until) {
  petra_wire *wires[2];
  petra_progress_thread *threads[2];
  petra_channel *in, *out;
  const void *data;
  void *buffer;
  size_t size;
  int64_t number, came_ns;
  wire_threads_create(2, 1, wires);
  for (int r = 0; r < 2; r++) {
    must(petra_progress_thread_create(wires[r], "a rank", INT64_C(20000000000), &threads[r]));
  }
  must(petra_channel_open_in(threads[0], 1, 0, 16, &in));
  must(petra_channel_open_out(threads[1], 0, 0, 16, &out));
  const int64_t began_ns = petra_clock_ns();
  must(petra_channel_take_until(in, 0, began_ns + 5000000, "a message", &data, &size));
  ck_assert_ptr_null(data);
  ck_assert(petra_clock_ns() >= began_ns + 5000000);
  ck_assert(!petra_channel_has_room(out, 1)); /* none is done with */
  ck_assert(petra_channel_has_room(out, 0));
  must(petra_channel_buffer(out, 0, "room", &buffer));
  memcpy(buffer, "seven", 6);
  const int64_t sent_ns = petra_clock_ns();
  must(petra_channel_send(out, 7, 6));
  must(petra_channel_take_until(in, 7, INT64_MAX, "a message", &data, &size));
  ck_assert(petra_channel_first(in, &number, &came_ns) && number == 7);
  ck_assert(size == 6 && strcmp(data, "seven") == 0 && came_ns >= sent_ns && came_ns <= petra_clock_ns());
  must(petra_channel_done(in, 7));
  must(petra_channel_buffer(out, 1, "room", &buffer)); /* waits until the word of that has come */
  for (int r = 0; r < 2; r++)
    petra_progress_thread_destroy(threads[r]);
  for (int r = 0; r < 2; r++)
    petra_wire_destroy(wires[r]);
}
END_TEST

/* Ranks that begin at a position agree on it at the earliest, though one of them has not passed it. */
START_TEST(agreement_where_ranks_begin) {
  petra_wire *wires[2];
  petra_progress_thread *threads[2];
  wire_threads_create(2, 1, wires);
  for (int r = 0; r < 2; r++) {
    must(petra_progress_thread_create(wires[r], "a rank", INT64_C(20000000000), &threads[r]));
  }
  ck_assert(petra_agreement_discard(threads[0], true));
  for (int r = 1; r >= 0; r--)
    petra_agreement_start(threads[r], 1000, 5);
  ck_assert(petra_agreement_may_pass(threads[1], 7) || !petra_agreement_discard(threads[0], false));
  for (int r = 0; r < 2; r++) {
    int64_t position;
    petra_agreed end;
    while (petra_agreement_may_pass(threads[r], r == 0 ? 5 : 7))
      continue;
    must(petra_agreement_wait(threads[r], &position, &end));
    ck_assert(position == 5 || position == 7);
    ck_assert_int_eq(end, PETRA_AGREED_CONTINUE);
    ck_assert_int_eq(petra_agreement_position(threads[r], &end), position);
  }
  for (int r = 0; r < 2; r++)
    petra_agreement_leave(threads[r], true);
  for (int r = 0; r < 2; r++)
    petra_progress_thread_destroy(threads[r]);
  for (int r = 0; r < 2; r++)
    petra_wire_destroy(wires[r]);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {random_orders,
                                a_silent_rank,
                                a_rank_that_says_so,
                                waiting_until,
                                agreement_where_ranks_begin,
                                what_is_watched_beside,
                                calls_in_the_thread,
                                what_is_watched_while_waiting};
  return harness_run("progress thread", tests, HARNESS_COUNT(tests));
}
