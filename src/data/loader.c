/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/threads.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

/* Additional slots beyond one per thread: one that the caller uses, and one that is ready for the caller. */
enum { SLOTS_MORE = 2 };

typedef enum slot_state {
  SLOT_FREE,
  SLOT_FILLING, /* a thread fills it */
  SLOT_DONE,    /* filled, or failed with `status` */
  SLOT_HELD     /* given to the caller */
} slot_state;

/* The memory of one batch. The state is read and written under the mutex; the rest belongs to the owner that the state
 * names. */
typedef struct slot {
  petra_batch batch;
  uint32_t *records; /* data set records of the batch, in order */
  slot_state state;
  petra_status status;
} slot;

typedef struct worker {
  petra_loader *loader;
  pthread_t thread;
  uint8_t *scratch; /* for the sampler; NULL if it needs none */
} worker;

struct petra_loader {
  const petra_dataset *set;
  petra_loader_options options;
  int64_t batches; /* per epoch */
  petra_sampler sampler;

  pthread_mutex_t mutex; /* protects the members below and the states of the slots */
  pthread_cond_t work;   /* a slot became free, or `stop` */
  pthread_cond_t ready;  /* a slot is done */
  bool stop;
  int64_t claim;       /* next microbatch to prepare */
  int64_t deliver;     /* next microbatch to deliver */
  uint32_t *order;     /* records in the order of epoch `order_epoch`; NULL without shuffle */
  int64_t order_epoch; /* -1: none yet */
  slot *slots;
  int slot_count;

  worker *workers;
  int worker_count; /* started */
  uint8_t *scratch; /* of all workers */
};

/* The maximum number of samples in a batch. */
static int64_t batch_capacity(const petra_loader *loader) {
  return loader->options.batch < loader->set->count ? loader->options.batch : loader->set->count;
}

static slot *find_slot(petra_loader *loader, slot_state state) {
  for (int i = 0; i < loader->slot_count; i++)
    if (loader->slots[i].state == state)
      return &loader->slots[i];
  return NULL;
}

static int32_t parts_of(const petra_loader_options *options) {
  return options->parts > 0 ? options->parts : 1;
}

/* Called under the mutex. Microbatches are claimed in order, so that the order of one epoch at a time is enough. */
static void claim(petra_loader *loader, slot *target) {
  int64_t microbatch = loader->claim++;
  const petra_loader_options *options = &loader->options;
  const int64_t epoch = microbatch / loader->batches;
  const int64_t first = (microbatch % loader->batches * parts_of(options) + options->part) * options->batch;
  int64_t left = loader->set->count - first;
  target->state = SLOT_FILLING;
  target->batch.microbatch = microbatch;
  target->batch.count = (int32_t)(left < loader->options.batch ? left : loader->options.batch);
  target->batch.label_count = target->batch.count * loader->sampler.labels;
  target->batch.shape[0] = target->batch.count;
  if (loader->order && loader->order_epoch != epoch) {
    petra_rng rng;
    petra_rng_init(&rng, loader->options.seed, PETRA_RNG_SHUFFLE, (uint32_t)epoch, 0);
    petra_rng_permutation(&rng, loader->order, (uint32_t)loader->set->count);
    loader->order_epoch = epoch;
  }
  for (int32_t i = 0; i < target->batch.count; i++)
    target->records[i] = loader->order ? loader->order[first + i] : (uint32_t)(first + i);
}

static petra_status fill(const petra_loader *loader, const slot *target, void *scratch) {
  const petra_sampler *sampler = &loader->sampler;
  const petra_batch *batch = &target->batch;
  const uint32_t epoch = (uint32_t)(batch->microbatch / loader->batches);
  for (int64_t i = 0; i < batch->count; i++)
    PETRA_TRY(sampler->read(sampler, epoch, target->records[i], batch, i, scratch));
  return PETRA_OK;
}

static void *work(void *argument) {
  const worker *self = argument;
  petra_loader *loader = self->loader;
  pthread_mutex_lock(&loader->mutex);
  while (!loader->stop) {
    slot *target = loader->claim < loader->options.end ? find_slot(loader, SLOT_FREE) : NULL;
    if (!target) {
      pthread_cond_wait(&loader->work, &loader->mutex);
      continue;
    }
    claim(loader, target);
    pthread_mutex_unlock(&loader->mutex);
    petra_status status = fill(loader, target, self->scratch);
    pthread_mutex_lock(&loader->mutex);
    target->status = status;
    target->state = SLOT_DONE;
    pthread_cond_broadcast(&loader->ready);
  }
  pthread_mutex_unlock(&loader->mutex);
  return NULL;
}

/* The caller's threads receive all signals: loader threads are started with all signals blocked. */
static petra_status start_threads(petra_loader *loader) {
  sigset_t all, before;
  int error = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < loader->options.threads && !error; i++) {
    worker *self = &loader->workers[i];
    *self = (worker){.loader = loader,
                     .scratch = loader->scratch ? loader->scratch + (size_t)i * loader->sampler.scratch_bytes : NULL};
    error = pthread_create(&self->thread, NULL, work, self);
    loader->worker_count += !error;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error ? petra_fail(PETRA_NO_MEMORY, "data.workers: loader thread %d of %d could not be started: %s",
                            loader->worker_count + 1, loader->options.threads, strerror(error))
               : PETRA_OK;
}

static petra_status allocate_slot(const petra_loader *loader, slot *target) {
  size_t capacity = (size_t)batch_capacity(loader);
  const petra_sampler *sampler = &loader->sampler;
  size_t values = (size_t)sampler->values;
  petra_batch *batch = &target->batch;
  *batch = (petra_batch){.samples = loader->set->samples,
                         .shape = {0, sampler->shape[0], sampler->shape[1], sampler->shape[2]},
                         .mean = loader->set->mean,
                         .deviation = loader->set->deviation};
  if (sampler->bytes) {
    PETRA_TRY(petra_allocate_raw(&batch->pixels, capacity, values));
    PETRA_TRY(petra_allocate_raw(&batch->choices, capacity, sizeof *batch->choices));
  } else if (values > 0) {
    PETRA_TRY(petra_allocate_raw(&batch->values, capacity, values * sizeof *batch->values));
  }
  PETRA_TRY(petra_allocate_raw(&batch->labels, capacity, (size_t)sampler->labels * sizeof *batch->labels));
  return petra_allocate_raw(&target->records, capacity, sizeof *target->records);
}

/* All memory of the loader is allocated here, none per batch. */
static petra_status allocate(petra_loader *loader) {
  size_t threads = (size_t)loader->options.threads;
  PETRA_TRY(petra_allocate(&loader->slots, threads + SLOTS_MORE, sizeof *loader->slots));
  loader->slot_count = (int)threads + SLOTS_MORE;
  for (int i = 0; i < loader->slot_count; i++)
    PETRA_TRY(allocate_slot(loader, &loader->slots[i]));
  if (loader->options.shuffle)
    PETRA_TRY(petra_allocate_raw(&loader->order, (size_t)loader->set->count, sizeof *loader->order));
  if (loader->sampler.scratch_bytes > 0)
    PETRA_TRY(petra_allocate_raw(&loader->scratch, threads, loader->sampler.scratch_bytes));
  return petra_allocate(&loader->workers, threads, sizeof *loader->workers);
}

static petra_status check_options(const petra_dataset *set, const petra_loader_options *options) {
  assert(options->batch >= 1 && options->threads >= 1 && options->first >= 0 && options->first <= options->end);
  assert(options->part >= 0 && options->part < parts_of(options) && (parts_of(options) == 1 || options->drop_last));
  const int64_t samples = (int64_t)options->batch * parts_of(options); /* samples of a microbatch */
  const char *noun = petra_sample_words_of(set->samples)->samples;
  if (set->count < 1 || (options->drop_last && set->count < samples))
    return petra_fail(PETRA_CONFIG,
                      "data.batch: %" PRId64 " %s are more than the %" PRId64
                      " of the data set, so that an epoch holds no batch (data.limit may be the reason)",
                      samples, noun, set->count);
  if (set->count > UINT32_MAX)
    return petra_fail(PETRA_UNSUPPORTED, "data.path: the data set has %" PRId64 " %s, at most %" PRIu32 " are possible",
                      set->count, noun, UINT32_MAX);
  return PETRA_OK;
}

petra_status petra_loader_create(const petra_dataset *set, const petra_loader_options *options, petra_loader **out) {
  petra_loader *loader = NULL;
  PETRA_TRY(check_options(set, options));
  PETRA_TRY(petra_allocate(&loader, 1, sizeof *loader));
  loader->set = set;
  loader->options = *options;
  loader->batches = options->drop_last ? set->count / ((int64_t)options->batch * parts_of(options))
                                       : (set->count + options->batch - 1) / options->batch;
  loader->claim = loader->deliver = options->first;
  loader->order_epoch = -1;
  petra_sampler_init(&loader->sampler, set, &loader->options);
  pthread_mutex_init(&loader->mutex, NULL); /* with default attributes these cannot fail on Linux */
  pthread_cond_init(&loader->work, NULL);
  pthread_cond_init(&loader->ready, NULL);
  petra_status status = allocate(loader);
  if (status == PETRA_OK)
    status = start_threads(loader);
  if (status == PETRA_OK)
    *out = loader;
  else
    petra_loader_destroy(loader);
  return status;
}

void petra_loader_destroy(petra_loader *loader) {
  if (!loader)
    return;
  pthread_mutex_lock(&loader->mutex);
  loader->stop = true;
  pthread_cond_broadcast(&loader->work);
  pthread_mutex_unlock(&loader->mutex);
  for (int i = 0; i < loader->worker_count; i++)
    pthread_join(loader->workers[i].thread, NULL);
  pthread_cond_destroy(&loader->ready);
  pthread_cond_destroy(&loader->work);
  pthread_mutex_destroy(&loader->mutex);
  for (int i = 0; i < loader->slot_count; i++) {
    const petra_batch *batch = &loader->slots[i].batch;
    PETRA_FREE_ALL(batch->values, batch->pixels, batch->choices, batch->labels, loader->slots[i].records);
  }
  PETRA_FREE_ALL(loader->slots, loader->order, loader->scratch, loader->workers, loader);
}

int32_t petra_loader_labels(const petra_loader *loader) {
  return loader->sampler.labels;
}

/* Waits for the slot with the next microbatch to deliver. Called under the mutex. Waiting would never end in two cases:
 * no further microbatch is prepared, or none can be prepared because the caller holds every slot. */
static petra_status wait_next(petra_loader *loader, slot **out) {
  if (loader->deliver >= loader->options.end)
    return petra_fail(PETRA_INTERNAL, "loader: microbatch %" PRId64 " is asked, the last one is %" PRId64,
                      loader->deliver, loader->options.end - 1);
  for (;;) {
    int held = 0;
    for (int i = 0; i < loader->slot_count; i++) {
      slot *looked_at = &loader->slots[i];
      held += looked_at->state == SLOT_HELD;
      if (looked_at->state == SLOT_DONE && looked_at->batch.microbatch == loader->deliver) {
        *out = looked_at;
        return PETRA_OK;
      }
    }
    if (held == loader->slot_count)
      return petra_fail(PETRA_INTERNAL,
                        "loader: microbatch %" PRId64
                        " is asked while %d batches are not given back, the most possible",
                        loader->deliver, held);
    pthread_cond_wait(&loader->ready, &loader->mutex);
  }
}

petra_status petra_loader_next(petra_loader *loader, petra_batch **out) {
  slot *found = NULL;
  PETRA_LOCKED(&loader->mutex);
  PETRA_TRY(wait_next(loader, &found));
  loader->deliver++;
  found->state = found->status == PETRA_OK ? SLOT_HELD : SLOT_FREE;
  if (found->state == SLOT_HELD)
    *out = &found->batch;
  else
    pthread_cond_signal(&loader->work);
  return found->status;
}

void petra_loader_give_back(petra_loader *loader, petra_batch *batch) {
  PETRA_LOCKED(&loader->mutex);
  for (int i = 0; i < loader->slot_count; i++)
    if (&loader->slots[i].batch == batch) {
      assert(loader->slots[i].state == SLOT_HELD);
      loader->slots[i].state = SLOT_FREE;
    }
  pthread_cond_signal(&loader->work);
}
