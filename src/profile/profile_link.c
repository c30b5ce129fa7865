/* SPDX-License-Identifier: Apache-2.0 */
/* petra profile: measures messages between two ranks. The progress thread moves them, as in a run. */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "profile/profile.h"

#include <math.h>

/* --- the time that a rank takes to convert tensors to messages, and messages to tensors --- */

/* Total size of the tensors, and of the messages, that the repetitions cycle through. */
static const int64_t COLD_BYTES = 32 << 20;
enum { COPIES = 64 };

typedef struct copies {
  petra_backend *backend;
  petra_host_type type;
  int64_t bytes;
  int count;
  petra_tensor *tensor[COPIES];
  char *messages; /* `count` messages of `bytes` */
} copies;

/* Creates tensors: images of 16 channels and 8 x 8 pixels, or of one pixel. */
static petra_status create_tensors(copies *c) {
  const int64_t elements = c->bytes / (c->type == PETRA_HOST_F64 ? 8 : 4);
  const int32_t many[4] = {(int32_t)(elements / 1024), 16, 8, 8}, few[4] = {1, (int32_t)elements, 1, 1};
  for (int i = 0; i < c->count; i++) {
    PETRA_TRY(petra_tensor_create(c->backend, PETRA_TENSOR_ACTIVATION, elements >= 1024 ? many : few, NULL,
                                  PETRA_MEMORY_WORKSPACE, &c->tensor[i]));
    PETRA_TRY(petra_op_fill(c->backend, c->tensor[i], 0.5));
  }
  return PETRA_OK;
}

static petra_status copy(const copies *c, int which, double *pack_s, double *unpack_s) {
  char *message = c->messages + which * c->bytes;
  const double start_s = petra_clock_s();
  PETRA_TRY(petra_op_download(c->backend, c->tensor[which], message, c->type));
  *pack_s = petra_clock_s() - start_s;
  message = c->messages + (which + c->count / 2) % c->count * c->bytes; /* a message that is not in the caches */
  const double packed_s = petra_clock_s();
  PETRA_TRY(petra_op_upload(c->backend, c->tensor[(which + c->count / 2) % c->count], message, c->type));
  PETRA_TRY(petra_backend_synchronize(c->backend));
  *unpack_s = petra_clock_s() - packed_s;
  return PETRA_OK;
}

/* Measures the seconds of each repetition for tensors of `bytes` bytes in the host's order. Each repetition uses other
 * tensors and messages. There are so many of them that, between two uses, they leave the same caches as in a run. */
static petra_status measure_copies(petra_backend *backend, int64_t bytes, int warmup, int repetitions, double *pack_s,
                                   double *unpack_s) {
  copies c = {.backend = backend,
              .type = backend->element_bytes[PETRA_TENSOR_ACTIVATION] > 4 ? PETRA_HOST_F64 : PETRA_HOST_F32,
              .bytes = bytes,
              .count = (int)(COLD_BYTES / bytes < 2        ? 2
                             : COLD_BYTES / bytes > COPIES ? COPIES
                                                           : COLD_BYTES / bytes)};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&c.messages, (size_t)c.count, (size_t)bytes), done);
  PETRA_TRY_GOTO(status, create_tensors(&c), done);
  for (int r = -warmup - c.count; r < repetitions; r++) {
    double packed_s, unpacked_s;
    PETRA_TRY_GOTO(status, copy(&c, (r + warmup + c.count) % c.count, &packed_s, &unpacked_s), done);
    if (r < 0)
      continue;
    pack_s[r] = packed_s;
    unpack_s[r] = unpacked_s;
  }
done:
  for (int i = 0; i < c.count; i++)
    petra_tensor_release(&c.tensor[i]);
  petra_free(c.messages);
  return status;
}

/* --- the measurement --- */

enum { LEAST_BYTES = 64, STEP = 8, ENOUGH_BYTES = 1 << 20, FEW_BYTES = 64 << 10, SWAPS = 10, FEW_SWAPS = 4 };

/* The measurements for each size: the time of a message with and without a message of the same size in the other
 * direction (in a pipeline there is one); the rank's own time for packing tensors; and the computing time that moving
 * the message costs. */
enum { TIME, ALONE, PACK, UNPACK, CARRY, KINDS };

/* While a rank computes: messages under way in each direction (a channel has two buffers), its working set (32 KiB of
 * f32), and the minimum time. */
enum { CARRIED = 2 };
static const int32_t LOAD_SHAPE[4] = {1, 32, 16, 16};
static const double LOAD_S = 0.04;

/* The channels from and to a neighbour. */
typedef struct neighbour {
  petra_channel *out, *in;
  int64_t number; /* number of the next message */
} neighbour;

typedef struct measurement {
  petra_ranks *ranks;
  petra_backend *backend;
  int sizes, repetitions, warmup;
  int64_t bytes[PETRA_PROFILE_MESSAGES];
  double *samples; /* [kind][size][repetition]; NaN: not measured here */
  double *pooled;  /* at rank 0: [kind][size][rank][repetition] */
  neighbour above, below;
  neighbour *other; /* the current one of the two neighbours */
} measurement;

static double *samples_of(measurement *m, int kind, int size) {
  return m->samples + ((size_t)kind * (size_t)m->sizes + (size_t)size) * (size_t)m->repetitions;
}

static void choose_sizes(measurement *m, const petra_plan *plan) {
  int64_t largest = ENOUGH_BYTES;
  for (int j = 0; j < plan->stages; j++) {
    petra_stage_summary summary;
    petra_plan_stage_summary(plan, j, &summary);
    largest = summary.forward_bytes > largest ? summary.forward_bytes : largest;
    largest = summary.backward_bytes > largest ? summary.backward_bytes : largest;
  }
  for (int64_t bytes = LEAST_BYTES; m->sizes == 0 || m->bytes[m->sizes - 1] < largest; bytes *= STEP)
    m->bytes[m->sizes++] = bytes;
}

/* --- messages --- */

/* Sends message number `i` of `count` that are under way together. */
static petra_status send(measurement *m, int i, int count, int64_t bytes) {
  neighbour *other = m->other;
  void *buffer;
  PETRA_TRY(petra_channel_buffer(other->out, other->number - count + i, "room for a message of the profile", &buffer));
  return petra_channel_send(other->out, other->number + i, (size_t)bytes);
}

static petra_status receive(measurement *m) {
  const void *data;
  size_t size;
  PETRA_TRY(petra_channel_take(m->other->in, m->other->number, "a message of the profile", &data, &size));
  return petra_channel_done(m->other->in, m->other->number);
}

/* Sends one message in each direction at the same time. */
static petra_status swap(measurement *m, int64_t bytes) {
  PETRA_TRY(send(m, 0, 1, bytes));
  PETRA_TRY(receive(m));
  m->other->number++;
  return PETRA_OK;
}

static petra_status time_size(measurement *m, int size) {
  const int64_t bytes = m->bytes[size];
  const int swaps = bytes < FEW_BYTES ? SWAPS : FEW_SWAPS;
  double *samples = samples_of(m, TIME, size);
  for (int r = -m->warmup; r < m->repetitions; r++) {
    const double start_s = petra_clock_s();
    for (int i = 0; i < swaps; i++)
      PETRA_TRY(swap(m, bytes));
    if (r >= 0)
      samples[r] = (petra_clock_s() - start_s) / swaps;
  }
  return PETRA_OK;
}

/* Sends a message to the other rank and a message of the smallest size back. The sender measures the time. */
static petra_status echo(measurement *m, int64_t bytes, bool sends) {
  if (sends)
    PETRA_TRY(send(m, 0, 1, bytes));
  PETRA_TRY(receive(m));
  if (!sends)
    PETRA_TRY(send(m, 0, 1, m->bytes[0]));
  m->other->number++;
  return PETRA_OK;
}

/* Measures messages without a message in the other direction. First one rank sends, then the other. */
static petra_status time_alone(measurement *m, int size, bool first) {
  const int64_t bytes = m->bytes[size];
  const int echoes = bytes < FEW_BYTES ? SWAPS : FEW_SWAPS;
  double *samples = samples_of(m, ALONE, size);
  for (int turn = 0; turn < 2; turn++)
    for (int r = -m->warmup; r < m->repetitions; r++) {
      const bool sends = first == (turn == 0);
      const double start_s = petra_clock_s();
      for (int i = 0; i < echoes; i++)
        PETRA_TRY(echo(m, bytes, sends));
      if (r >= 0 && sends)
        samples[r] = (petra_clock_s() - start_s) / echoes;
    }
  return PETRA_OK;
}

/* Computes the time of one direction from the time of the round trip. */
static void without_way_back(measurement *m) {
  const double back_s = petra_profile_spread(samples_of(m, ALONE, 0), (size_t)m->repetitions).median / 2;
  for (int i = 0; i < m->sizes; i++)
    for (int r = 0; r < m->repetitions; r++) {
      double *sample = &samples_of(m, ALONE, i)[r];
      *sample = *sample > back_s ? *sample - back_s : 0;
    }
}

static petra_status time_pair(measurement *m, int lower) {
  const int rank = m->ranks->rank;
  const bool first = rank == lower;
  const size_t capacity = (size_t)m->bytes[m->sizes - 1];
  if (rank != lower && rank != lower + 1)
    return PETRA_OK;
  const int other = first ? lower + 1 : lower;
  m->other = first ? &m->above : &m->below;
  PETRA_TRY(petra_channel_open_out(m->ranks->progress, other, 2 * lower + !first, capacity, &m->other->out));
  PETRA_TRY(petra_channel_open_in(m->ranks->progress, other, 2 * lower + first, capacity, &m->other->in));
  for (int i = 0; i < m->sizes; i++) {
    PETRA_TRY(time_size(m, i));
    PETRA_TRY(time_alone(m, i, first));
  }
  without_way_back(m);
  return PETRA_OK;
}

/* --- messages while the rank computes --- */

typedef struct load {
  petra_tensor *tensor; /* fits in the caches: only the cores are shared */
  int64_t times;
} load;

/* Measures a computation. Both ranks of a pair call this at the same time. If `carries` is true, messages are under way
 * meanwhile. */
static petra_status compute(measurement *m, const load *l, bool carries, double *seconds) {
  if (m->other)
    PETRA_TRY(swap(m, m->bytes[0]));
  for (int i = 0; i < CARRIED && m->other && carries; i++)
    PETRA_TRY(send(m, i, CARRIED, m->bytes[m->sizes - 1]));
  const double start_s = petra_clock_s();
  for (int64_t i = 0; i < l->times; i++)
    PETRA_TRY(petra_op_fill(m->backend, l->tensor, 0.5));
  PETRA_TRY(petra_backend_synchronize(m->backend));
  *seconds = petra_clock_s() - start_s;
  return PETRA_OK;
}

/* Chooses a computation that is long enough for the messages to be moved meanwhile. */
static petra_status choose_load(measurement *m, load *l) {
  const int last = m->sizes - 1;
  const double message_s = petra_profile_spread(samples_of(m, TIME, last), (size_t)m->repetitions).mean;
  const double wanted_s = 1.5 * CARRIED * message_s > LOAD_S ? 1.5 * CARRIED * message_s : LOAD_S;
  double seconds = 0;
  for (l->times = 64; seconds < LOAD_S / 4; l->times *= 2)
    PETRA_TRY(compute(m, l, false, &seconds));
  l->times = (int64_t)((double)l->times / 2 * wanted_s / seconds) + 1;
  return PETRA_OK;
}

/* Measures how much longer a rank computes while CARRIED of the largest messages leave and as many arrive, per message.
 * For smaller messages, whose effect would be lost in noise, the result is scaled by their lengths. */
static petra_status carry(measurement *m, const load *l, int repetition) {
  double before_s, carrying_s, after_s;
  PETRA_TRY(compute(m, l, false, &before_s));
  PETRA_TRY(compute(m, l, true, &carrying_s));
  for (int i = 0; i < CARRIED && m->other; i++, m->other->number++)
    PETRA_TRY(receive(m));
  PETRA_TRY(compute(m, l, false, &after_s));
  for (int i = 0; i < m->sizes && m->other && repetition >= 0; i++) {
    const double part = (double)m->bytes[i] / (double)m->bytes[m->sizes - 1];
    samples_of(m, CARRY, i)[repetition] = part * (carrying_s - (before_s + after_s) / 2) / (2 * CARRIED);
  }
  return PETRA_OK;
}

/* All ranks compute, as in a run where all are busy; the ranks of a pair also exchange messages. First every second
 * pair exchanges messages, then the other pairs. */
static petra_status time_carrying(measurement *m, const load *l) {
  const int rank = m->ranks->rank;
  for (int turn = 0; turn < 2 && turn + 1 < m->ranks->count; turn++) {
    neighbour *other = rank % 2 == turn ? &m->above : &m->below;
    m->other = other->out ? other : NULL;
    for (int r = -m->warmup; r < m->repetitions; r++)
      PETRA_TRY(carry(m, l, r));
  }
  return PETRA_OK;
}

static petra_status measure_carrying(measurement *m) {
  PETRA_RELEASED petra_tensor *tensor = NULL;
  PETRA_TRY(
      petra_tensor_create(m->backend, PETRA_TENSOR_ACTIVATION, LOAD_SHAPE, NULL, PETRA_MEMORY_WORKSPACE, &tensor));
  load l = {.tensor = tensor};
  m->other = NULL; /* each rank computes without a neighbour */
  PETRA_TRY(choose_load(m, &l));
  return time_carrying(m, &l);
}

/* --- all ranks --- */

/* Returns the spread of the samples that were measured. */
static petra_spread spread_of(measurement *m, int kind, int size) {
  const int all = m->ranks->count * m->repetitions;
  double *samples = m->pooled + ((size_t)kind * (size_t)m->sizes + (size_t)size) * (size_t)all;
  int count = 0;
  for (int i = 0; i < all; i++)
    if (!isnan(samples[i]))
      samples[count++] = samples[i];
  return petra_profile_spread(samples, (size_t)count);
}

static void summarise(measurement *m, petra_profile *out) {
  out->messages = m->sizes;
  for (int i = 0; i < m->sizes; i++)
    out->message[i] = (petra_profile_message){.bytes = m->bytes[i],
                                              .time = spread_of(m, TIME, i),
                                              .alone = spread_of(m, ALONE, i),
                                              .pack_s = spread_of(m, PACK, i).mean,
                                              .unpack_s = spread_of(m, UNPACK, i).mean,
                                              .carry_s = fmax(0, spread_of(m, CARRY, i).mean)};
}

/* Measures one pair at a time, except for the values that are measured while all ranks compute. */
static petra_status measure(measurement *m) {
  for (int i = 0; i < m->sizes; i++)
    PETRA_TRY(measure_copies(m->backend, m->bytes[i], m->warmup, m->repetitions, samples_of(m, PACK, i),
                             samples_of(m, UNPACK, i)));
  for (int lower = 0; lower + 1 < m->ranks->count; lower++)
    PETRA_TRY(petra_ranks_agree(m->ranks, time_pair(m, lower), NULL));
  return measure_carrying(m);
}

petra_status petra_profile_measure_link(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks,
                                        petra_profile *out) {
  PETRA_FREED double *samples = NULL, *pooled = NULL;
  measurement m = {.ranks = ranks,
                   .backend = backend,
                   .repetitions = (int)plan->config->profile.repetitions,
                   .warmup = plan->config->profile.warmup < 3 ? (int)plan->config->profile.warmup : 3};
  choose_sizes(&m, plan);
  const size_t count = (size_t)KINDS * (size_t)m.sizes * (size_t)m.repetitions;
  PETRA_TRY(petra_allocate(&samples, count, sizeof *samples));
  PETRA_TRY(petra_allocate(&pooled, count * (size_t)ranks->count, sizeof *pooled));
  for (size_t i = 0; i < count; i++)
    samples[i] = NAN;
  m.samples = samples;
  m.pooled = pooled;
  PETRA_TRY(measure(&m));
  PETRA_TRY(petra_profile_pool(ranks, samples, (size_t)(KINDS * m.sizes), (size_t)m.repetitions, pooled));
  if (ranks->rank == 0)
    summarise(&m, out);
  return PETRA_OK;
}
