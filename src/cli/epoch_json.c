/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/epoch_json.h"

#include "base/json.h"

#include <jansson.h>

json_t *petra_epoch_json(const petra_runlog_epoch *row, petra_sample_kind samples, bool recalibrated) {
  json_t *object =
      json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "epoch", (int)row->epoch, "train_loss",
                petra_json_real(row->train_loss), "train_top1", petra_json_real(row->train_top1), "eval_loss",
                petra_json_real(row->eval_loss), "eval_top1", petra_json_real(row->eval_top1), "eval_top5",
                petra_json_real(row->eval_top5), "lr", petra_json_real(row->lr), "wall_s", petra_json_real(row->wall_s),
                petra_sample_words_of(samples)->rate, petra_json_real(row->rate));
  if (recalibrated) {
    petra_json_set(&object, "eval_loss_recalibrated", petra_json_real(row->eval_loss_recalibrated));
    petra_json_set(&object, "eval_top1_recalibrated", petra_json_real(row->eval_top1_recalibrated));
    petra_json_set(&object, "eval_top5_recalibrated", petra_json_real(row->eval_top5_recalibrated));
  }
  return object;
}

json_t *petra_peaks_json(const int64_t bytes[PETRA_MEMORY_CATEGORIES], int64_t total) {
  json_t *object = json_object();
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    petra_json_set(&object, petra_memory_category_name((petra_memory_category)c), json_integer(bytes[c]));
  petra_json_set(&object, "total", json_integer(total));
  return object;
}
