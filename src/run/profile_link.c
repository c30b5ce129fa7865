/* petra profile: what messages take between two ranks, as they go in a run: by the carrier. */
#include "backend/ops.h"
#include "base/clock.h"
#include "base/mem.h"
#include "run/profile.h"

#include <string.h>

enum { LEAST_BYTES = 64, STEP = 8, ENOUGH_BYTES = 1 << 20, FEW_BYTES = 64 << 10, SWAPS = 10, FEW_SWAPS = 4 };

/* What is measured of each size: what a message takes while one of the same size goes the other way, as in a pipeline, and with
 * nothing the other way; and the rank's own time for tensors. */
enum { TIME, ALONE, PACK, UNPACK, KINDS };

typedef struct measurement {
  petra_ranks *ranks;
  petra_backend *backend;
  int sizes, repetitions, warmup;
  int64_t bytes[PETRA_PROFILE_MESSAGES];
  double *samples; /* [kind][size][repetition]; negative: not measured here */
  double *pooled;  /* at rank 0: [kind][size][rank][repetition] */
  char *host;
  petra_way *out, *in;
  int64_t number; /* of the next message */
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

static petra_status send(measurement *m, int64_t bytes) {
  void *buffer;
  PETRA_TRY(petra_way_buffer(m->out, m->number - 1, "room for a message of the profile", &buffer));
  return petra_way_send(m->out, m->number, (size_t)bytes);
}

static petra_status receive(measurement *m) {
  const void *data;
  size_t size;
  PETRA_TRY(petra_way_take(m->in, m->number, "a message of the profile", &data, &size));
  return petra_way_done(m->in, m->number);
}

/* One each way at the same time. */
static petra_status swap(measurement *m, int64_t bytes) {
  PETRA_TRY(send(m, bytes));
  PETRA_TRY(receive(m));
  m->number++;
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

/* There and back, the way back with the smallest message. Measured at the rank that sends. */
static petra_status echo(measurement *m, int64_t bytes, bool sends) {
  if (sends)
    PETRA_TRY(send(m, bytes));
  PETRA_TRY(receive(m));
  if (!sends)
    PETRA_TRY(send(m, m->bytes[0]));
  m->number++;
  return PETRA_OK;
}

/* One rank sends, then the other. */
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

/* One way, of what was measured there and back. */
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
  m->number = 0;
  PETRA_TRY(petra_carrier_way_out(m->ranks->carrier, other, 2 * lower + !first, capacity, &m->out));
  PETRA_TRY(petra_carrier_way_in(m->ranks->carrier, other, 2 * lower + first, capacity, &m->in));
  for (int i = 0; i < m->sizes; i++) {
    PETRA_TRY(time_size(m, i));
    PETRA_TRY(time_alone(m, i, first));
  }
  without_way_back(m);
  return PETRA_OK;
}

/* --- tensors --- */

static petra_status copy(measurement *m, petra_tensor *tensor, int size) {
  const petra_host_type type = m->backend->element_bytes[PETRA_TENSOR_ACTIVATION] > 4 ? PETRA_HOST_F64 : PETRA_HOST_F32;
  for (int r = -m->warmup; r < m->repetitions; r++) {
    const double start_s = petra_clock_s();
    PETRA_TRY(petra_op_download(m->backend, tensor, m->host, type));
    const double packed_s = petra_clock_s();
    PETRA_TRY(petra_op_upload(m->backend, tensor, m->host, type));
    PETRA_TRY(petra_backend_synchronize(m->backend));
    if (r < 0)
      continue;
    samples_of(m, PACK, size)[r] = packed_s - start_s;
    samples_of(m, UNPACK, size)[r] = petra_clock_s() - packed_s;
  }
  return PETRA_OK;
}

/* A tensor of so many bytes: images of 16 channels and 8 x 8, or one pixel. */
static petra_status time_copies(measurement *m, int size) {
  const int64_t wide = m->backend->element_bytes[PETRA_TENSOR_ACTIVATION] > 4 ? 8 : 4, elements = m->bytes[size] / wide;
  const int32_t many[4] = {(int32_t)(elements / 1024), 16, 8, 8}, few[4] = {1, (int32_t)elements, 1, 1};
  petra_tensor *tensor;
  PETRA_TRY(petra_tensor_create(m->backend, PETRA_TENSOR_ACTIVATION, elements >= 1024 ? many : few, NULL,
                                PETRA_MEMORY_WORKSPACE, &tensor));
  petra_status status = petra_op_fill(m->backend, tensor, 0.5);
  if (status == PETRA_OK)
    status = copy(m, tensor, size);
  petra_tensor_release(&tensor);
  return status;
}

/* --- all ranks --- */

static petra_status pool(void *context, int rank, const void *data, size_t size) {
  measurement *m = context;
  const size_t row = (size_t)m->repetitions * sizeof *m->pooled, rows = (size_t)(KINDS * m->sizes);
  (void)size;
  for (size_t i = 0; i < rows; i++)
    memcpy((char *)m->pooled + (i * (size_t)m->ranks->count + (size_t)rank) * row, (const char *)data + i * row, row);
  return PETRA_OK;
}

/* Of those that were measured. */
static petra_spread spread_of(measurement *m, int kind, int size) {
  const int all = m->ranks->count * m->repetitions;
  double *samples = m->pooled + ((size_t)kind * (size_t)m->sizes + (size_t)size) * (size_t)all;
  int count = 0;
  for (int i = 0; i < all; i++)
    if (samples[i] >= 0)
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
                                              .unpack_s = spread_of(m, UNPACK, i).mean};
}

static petra_status measure(measurement *m) {
  for (int i = 0; i < m->sizes; i++)
    PETRA_TRY(time_copies(m, i));
  for (int lower = 0; lower + 1 < m->ranks->count; lower++) /* one pair at a time */
    PETRA_TRY(petra_ranks_agree(m->ranks, time_pair(m, lower), NULL));
  return PETRA_OK;
}

petra_status petra_profile_measure_link(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks,
                                        petra_profile *out) {
  measurement m = {.ranks = ranks,
                   .backend = backend,
                   .repetitions = (int)plan->config->profile.repetitions,
                   .warmup = plan->config->profile.warmup < 3 ? (int)plan->config->profile.warmup : 3};
  petra_status status;
  choose_sizes(&m, plan);
  const size_t samples = (size_t)KINDS * (size_t)m.sizes * (size_t)m.repetitions;
  PETRA_TRY_GOTO(status, petra_allocate(&m.host, (size_t)m.bytes[m.sizes - 1], 1), done);
  PETRA_TRY_GOTO(status, petra_allocate(&m.samples, samples, sizeof *m.samples), done);
  PETRA_TRY_GOTO(status, petra_allocate(&m.pooled, samples * (size_t)ranks->count, sizeof *m.pooled), done);
  for (size_t i = 0; i < samples; i++)
    m.samples[i] = -1;
  PETRA_TRY_GOTO(status, measure(&m), done);
  PETRA_TRY_GOTO(status, petra_ranks_gather(ranks, m.samples, samples * sizeof *m.samples, pool, &m), done);
  if (ranks->rank == 0)
    summarise(&m, out);
done:
  petra_free(m.pooled);
  petra_free(m.samples);
  petra_free(m.host);
  return status;
}
