/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile_copies.h"

#include "backend/ops.h"
#include "base/clock.h"
#include "base/mem.h"

/* Total size of the tensors, and of the messages, that the repetitions cycle through. */
static const int64_t COLD_BYTES = 32 << 20;
enum { MAXIMUM = 64 };

typedef struct copies {
  petra_backend *backend;
  petra_host_type type;
  int64_t bytes;
  int count;
  petra_tensor *tensor[MAXIMUM];
  char *messages; /* `count` messages of `bytes` */
} copies;

/* Images of 16 channels and 8 x 8, or one pixel. */
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
  message = c->messages + (which + c->count / 2) % c->count * c->bytes; /* another one than what is in the caches */
  const double packed_s = petra_clock_s();
  PETRA_TRY(petra_op_upload(c->backend, c->tensor[(which + c->count / 2) % c->count], message, c->type));
  PETRA_TRY(petra_backend_synchronize(c->backend));
  *unpack_s = petra_clock_s() - packed_s;
  return PETRA_OK;
}

petra_status petra_profile_measure_copies(petra_backend *backend, int64_t bytes, int warmup, int repetitions,
                                          double *pack_s, double *unpack_s) {
  copies c = {.backend = backend,
              .type = backend->element_bytes[PETRA_TENSOR_ACTIVATION] > 4 ? PETRA_HOST_F64 : PETRA_HOST_F32,
              .bytes = bytes,
              .count = (int)(COLD_BYTES / bytes < 2         ? 2
                             : COLD_BYTES / bytes > MAXIMUM ? MAXIMUM
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
