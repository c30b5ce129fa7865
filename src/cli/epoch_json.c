#include "cli/epoch_json.h"

#include "base/json.h"

#include <jansson.h>

petra_status petra_epoch_json(const petra_runlog_epoch *row, json_t *object) {
  PETRA_TRY(petra_json_set(object, "epoch", json_integer(row->epoch)));
  PETRA_TRY(petra_json_set(object, "train_loss", petra_json_real(row->train_loss)));
  PETRA_TRY(petra_json_set(object, "train_top1", petra_json_real(row->train_top1)));
  PETRA_TRY(petra_json_set(object, "eval_loss", petra_json_real(row->eval_loss)));
  PETRA_TRY(petra_json_set(object, "eval_top1", petra_json_real(row->eval_top1)));
  PETRA_TRY(petra_json_set(object, "eval_top5", petra_json_real(row->eval_top5)));
  PETRA_TRY(petra_json_set(object, "lr", petra_json_real(row->lr)));
  PETRA_TRY(petra_json_set(object, "wall_s", petra_json_real(row->wall_s)));
  return petra_json_set(object, "images_per_s", petra_json_real(row->images_per_s));
}
