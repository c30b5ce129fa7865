/* SPDX-License-Identifier: Apache-2.0 */
/* The loss. */
#include "backend/cuda/segment.h"

#include <string.h>

static void set_results(const void *host, petra_cross_entropy *loss) {
  cuda_loss_result found;
  memcpy(&found, host, sizeof found);
  loss->loss = found.loss;
  loss->top1 = found.top1;
  loss->top5 = found.top5;
}

petra_status cuda_cross_entropy(petra_backend *backend, petra_cross_entropy *loss) {
  cuda_backend *cuda = cuda_of(backend);
  const int64_t rows = petra_tensor_rows(loss->logits);
  const bool later = loss->later && !loss->unwanted && cuda->segment->open;
  const void *labels, *host;
  void *result;
  PETRA_TRY(
      (later ? cuda_late_result : cuda_result)(cuda, &result)); /* may submit: before the labels are in the segment */
  PETRA_TRY(cuda_value(cuda, loss->labels, (size_t)rows * sizeof *loss->labels, &labels));
  CUDA_ARGUMENTS(cuda_cross_entropy_args, a);
  a.logits = cuda_read(cuda, loss->logits);
  a.labels = labels;
  a.dlogits = loss->dlogits ? cuda_write(cuda, loss->dlogits) : NULL;
  a.result = result;
  a.n = (int32_t)rows;
  a.classes = petra_tensor_columns(loss->logits);
  PETRA_TRY(cuda_reserve(cuda, cuda_cross_entropy_scratch(a.n)));
  PETRA_TRY(cuda_add_command(cuda, cuda_cross_entropy_launch, &a, sizeof a));
  if (later)
    loss->ticket = cuda_late_ticket(cuda);
  if (later || loss->unwanted)
    return PETRA_OK;
  PETRA_TRY(cuda_fetch(cuda, result, sizeof(cuda_loss_result), &host));
  set_results(host, loss);
  return PETRA_OK;
}

petra_status cuda_collect(petra_backend *backend, int64_t ticket, petra_cross_entropy *out) {
  const void *host;
  PETRA_TRY(cuda_collect_result(cuda_of(backend), ticket, &host));
  set_results(host, out);
  return PETRA_OK;
}
