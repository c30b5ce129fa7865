/* SPDX-License-Identifier: Apache-2.0 */
#include "record/run_h5_schema.h"

#include <hdf5.h>

#define COLUMN(row, member, type, units)                                                                               \
  { #member, PETRA_COLUMN_##type, offsetof(row, member), units }
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const petra_column train_columns[] = {
    COLUMN(petra_runlog_train, microbatch, I64, "1"), COLUMN(petra_runlog_train, epoch, I32, "1"),
    COLUMN(petra_runlog_train, lr, F64, "1"),         COLUMN(petra_runlog_train, loss, F64, "nat"),
    COLUMN(petra_runlog_train, top1, F64, "1"),       COLUMN(petra_runlog_train, wall_s, F64, "s"),
    COLUMN(petra_runlog_train, virtual_s, F64, "s"),
};

#define EPOCH_COLUMNS(rate_name, rate_units)                                                                           \
  COLUMN(petra_runlog_epoch, epoch, I32, "1"), COLUMN(petra_runlog_epoch, train_loss, F64, "nat"),                     \
      COLUMN(petra_runlog_epoch, train_top1, F64, "1"), COLUMN(petra_runlog_epoch, eval_loss, F64, "nat"),             \
      COLUMN(petra_runlog_epoch, eval_top1, F64, "1"), COLUMN(petra_runlog_epoch, eval_top5, F64, "1"),                \
      COLUMN(petra_runlog_epoch, lr, F64, "1"), COLUMN(petra_runlog_epoch, wall_s, F64, "s"), {                        \
    rate_name, PETRA_COLUMN_F64, offsetof(petra_runlog_epoch, rate), rate_units                                        \
  }

static const petra_column token_epoch_columns[] = {EPOCH_COLUMNS("tokens_per_s", "tokens/s")};
static const petra_column epoch_columns[] = {
    EPOCH_COLUMNS("images_per_s", "images/s"),
    COLUMN(petra_runlog_epoch, eval_loss_recalibrated, F64, "nat"),
    COLUMN(petra_runlog_epoch, eval_top1_recalibrated, F64, "1"),
    COLUMN(petra_runlog_epoch, eval_top5_recalibrated, F64, "1"),
};
enum { RECALIBRATED_COLUMNS = 3 }; /* the last ones */

static const petra_column stage_columns[] = {
    COLUMN(petra_runlog_stage, stage, I32, "1"),
    COLUMN(petra_runlog_stage, name, TEXT, "1"),
    COLUMN(petra_runlog_stage, reversible, I32, "1"),
    COLUMN(petra_runlog_stage, parameters, I64, "count"),
    COLUMN(petra_runlog_stage, forward_flops, I64, "FLOP/image"),
    COLUMN(petra_runlog_stage, forward_bytes, I64, "byte"),
    COLUMN(petra_runlog_stage, backward_bytes, I64, "byte"),
    COLUMN(petra_runlog_stage, delay, I32, "microbatches"),
};

static const petra_column action_columns[] = {
    COLUMN(petra_runlog_action, start_ns, I64, "ns"),       COLUMN(petra_runlog_action, end_ns, I64, "ns"),
    COLUMN(petra_runlog_action, stage, I32, "1"),           COLUMN(petra_runlog_action, kind, I32, "1"),
    COLUMN(petra_runlog_action, microbatch, I64, "1"),      COLUMN(petra_runlog_action, version_read, I64, "1"),
    COLUMN(petra_runlog_action, version_written, I64, "1"),
};

#define CATEGORY_NAME(name, text) text,
const char *const petra_runlog_categories[] = {PETRA_MEMORY_LIST(CATEGORY_NAME) "total"};

const char *petra_runlog_stage_units(const petra_column *column, petra_sample_kind samples) {
  const bool flops = column->offset == offsetof(petra_runlog_stage, forward_flops);
  return flops && samples == PETRA_SAMPLE_TOKENS ? "FLOP/window" : column->units;
}

const char *const petra_runlog_kinds[PETRA_RUNLOG_KINDS] = {"F", "B", "W", "U", "E"};

_Static_assert(sizeof action_columns / sizeof *action_columns <= PETRA_RUNLOG_MAX_COLUMNS, "raise MAX_COLUMNS");
_Static_assert(sizeof train_columns / sizeof *train_columns <= PETRA_RUNLOG_MAX_COLUMNS, "raise MAX_COLUMNS");
_Static_assert(sizeof epoch_columns / sizeof *epoch_columns <= PETRA_RUNLOG_MAX_COLUMNS, "raise MAX_COLUMNS");
_Static_assert(sizeof stage_columns / sizeof *stage_columns <= PETRA_RUNLOG_MAX_COLUMNS, "raise MAX_COLUMNS");

/* Chunks: 8 KiB a column of /train, so that a short run stays small and a long one has few; runs have 10 to
 * 1000 epochs. */
const petra_column_group petra_runlog_train_group = {
    "train", "microbatch", 1024, sizeof(petra_runlog_train), train_columns, COUNT(train_columns)};
static const petra_column_group epoch_group = {
    "epoch", "epoch", 64, sizeof(petra_runlog_epoch), epoch_columns, COUNT(epoch_columns) - RECALIBRATED_COLUMNS};
static const petra_column_group epoch_recalibrated_group = {
    "epoch", "epoch", 64, sizeof(petra_runlog_epoch), epoch_columns, COUNT(epoch_columns)};
static const petra_column_group token_epoch_group = {
    "epoch", "epoch", 64, sizeof(petra_runlog_epoch), token_epoch_columns, COUNT(token_epoch_columns)};

const petra_column_group *petra_runlog_epoch_group(petra_sample_kind samples, bool recalibrates) {
  if (samples == PETRA_SAMPLE_TOKENS)
    return &token_epoch_group;
  return recalibrates ? &epoch_recalibrated_group : &epoch_group;
}

/* Runs have up to billions of actions. */
const petra_column_group petra_runlog_action_group = {
    "trace/actions", "action", 4096, sizeof(petra_runlog_action), action_columns, COUNT(action_columns)};
const petra_column_group petra_runlog_stage_group = {
    "model", "stage", 0, sizeof(petra_runlog_stage), stage_columns, COUNT(stage_columns)};

size_t petra_column_bytes(petra_column_type type) {
  return type == PETRA_COLUMN_I32 ? 4 : 8;
}

int64_t petra_column_memory_type(petra_column_type type) {
  if (type == PETRA_COLUMN_F64)
    return H5T_NATIVE_DOUBLE;
  return type == PETRA_COLUMN_I64 ? H5T_NATIVE_INT64 : H5T_NATIVE_INT32;
}

int64_t petra_column_file_type(petra_column_type type) {
  if (type == PETRA_COLUMN_F64)
    return H5T_IEEE_F64LE;
  return type == PETRA_COLUMN_I64 ? H5T_STD_I64LE : H5T_STD_I32LE;
}

int petra_column_class(petra_column_type type) {
  return type == PETRA_COLUMN_F64 ? H5T_FLOAT : H5T_INTEGER;
}

/* The type of a name: of fixed length, for a name of variable length would be an object in h5py's table. */
static hid_t name_type(size_t bytes) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (H5Tset_size(type, bytes) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0)
    return type;
  H5Tclose(type);
  return -1;
}

int64_t petra_runlog_stage_type(size_t name_bytes, bool in_memory) {
  const size_t bytes = sizeof(petra_runlog_stage) + name_bytes;
  hid_t name = name_type(name_bytes), row = H5Tcreate(H5T_COMPOUND, bytes);
  bool done = name >= 0 && row >= 0;
  size_t packed = 0;
  for (int c = 0; c < petra_runlog_stage_group.count && done; c++) {
    const petra_column *column = &stage_columns[c];
    const bool text = column->type == PETRA_COLUMN_TEXT;
    hid_t member = text        ? name
                   : in_memory ? petra_column_memory_type(column->type)
                               : petra_column_file_type(column->type);
    size_t offset = !in_memory ? packed : text ? sizeof(petra_runlog_stage) : column->offset;
    done = H5Tinsert(row, column->name, offset, member) >= 0;
    packed += H5Tget_size(member);
  }
  done = done && (in_memory || H5Tset_size(row, packed) >= 0);
  H5Tclose(name);
  if (done)
    return row;
  H5Tclose(row);
  return -1;
}
