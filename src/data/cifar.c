/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data_sets.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
  SIDE = 32,
  PIXEL_BYTES = 3 * SIDE * SIDE,
  LABEL_BYTES_MAX = 2,
  FILES_MAX = 5,
  RECORDS_AT_ONCE = 64 /* records per read while labels are read */
};

typedef struct label_byte {
  const char *name; /* in messages */
  int32_t values;
} label_byte;

typedef struct cifar_format {
  const char *set; /* the value of data.set */
  int label_bytes;
  label_byte labels[LABEL_BYTES_MAX]; /* the last one is the label of the record */
  const char *train[FILES_MAX + 1];
  const char *eval[2];
} cifar_format;

static const cifar_format formats[] = {
    [PETRA_CIFAR10] = {"cifar10",
                       1,
                       {{"label", 10}},
                       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                        "data_batch_5.bin", NULL},
                       {"test_batch.bin", NULL}},
    [PETRA_CIFAR100] =
        {"cifar100", 2, {{"coarse label", 20}, {"fine label", 100}}, {"train.bin", NULL}, {"test.bin", NULL}},
};

/* One file of the split, open for reading. */
typedef struct source {
  petra_file file;
  int64_t records;
} source;

/* Records are read on demand; only labels are in memory. */
typedef struct cifar {
  petra_dataset base;
  int label_bytes;
  source sources[FILES_MAX];
  int source_count;
  struct record {
    uint32_t number; /* in its file */
    uint8_t source, label;
  } * records;
} cifar;

static int64_t record_bytes(const cifar_format *format) {
  return format->label_bytes + PIXEL_BYTES;
}

static void cifar_destroy(petra_dataset *set) {
  cifar *self = (cifar *)set;
  for (int i = 0; i < self->source_count; i++)
    petra_file_close(&self->sources[i].file);
  PETRA_FREE_ALL(self->records, self);
}

static petra_status cifar_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  const cifar *self = (const cifar *)set;
  const struct record *record = &self->records[index];
  const int64_t at = (int64_t)record->number * (self->label_bytes + PIXEL_BYTES) + self->label_bytes;
  *label = record->label;
  return petra_file_read_at(&self->sources[record->source].file, at, pixels, PIXEL_BYTES);
}

static int32_t cifar_label(const petra_dataset *set, int64_t index) {
  return ((const cifar *)set)->records[index].label;
}

static const petra_dataset_ops cifar_ops = {.destroy = cifar_destroy, .read = cifar_read, .label = cifar_label};

/* Opens a file. Its number of records is rounded down; the size must be a whole number of records. If it is not, the
 * error names a likely reason: the file belongs to the other set. */
static petra_status open_source(const cifar_format *format, const char *path, source *out) {
  char what[64];
  snprintf(what, sizeof what, "a file of %s records (data.path)", format->set);
  PETRA_TRY(petra_file_open(path, what, &out->file));
  const int64_t length = record_bytes(format), bytes = out->file.bytes;
  out->records = bytes / length;
  if (bytes == 0)
    return petra_fail(PETRA_DATA, "%s: the file is empty, expected %s records of %" PRId64 " bytes", path, format->set,
                      length);
  if (bytes % length != 0) {
    const cifar_format *other = format == &formats[PETRA_CIFAR10] ? &formats[PETRA_CIFAR100] : &formats[PETRA_CIFAR10];
    bool fits_other = bytes % record_bytes(other) == 0;
    return petra_fail(PETRA_DATA,
                      "%s: %" PRId64 " bytes are left over after %" PRId64
                      " records, expected a whole number of %s records of %" PRId64 " bytes%s%s",
                      path, bytes % length, bytes / length, format->set, length,
                      fits_other ? "; the size fits data.set: " : "", fits_other ? other->set : "");
  }
  return PETRA_OK;
}

/* Opens the files of `path`. The count includes every opened file, also on failure. */
static petra_status open_sources(const cifar_format *format, const char *path, petra_split split, int64_t *problems,
                                 cifar *self) {
  const char *const *names = split == PETRA_SPLIT_TRAIN ? format->train : format->eval;
  struct stat info;
  if (!path || !*path)
    return petra_fail(PETRA_CONFIG, "data.path: is empty, expected the folder of the %s files or one such file",
                      format->set);
  if (stat(path, &info) != 0)
    return petra_fail(PETRA_IO,
                      "data.path: %s: %s, expected a folder that holds %s or one file of %s records; "
                      "scripts/get_data %s fetches it",
                      path, strerror(errno), names[0], format->set, format->set);
  if (S_ISDIR(info.st_mode)) {
    for (int i = 0; names[i]; i++) {
      PETRA_FREED char *full = NULL;
      PETRA_TRY(petra_folder_path(path, names[i], NULL, &full));
      PETRA_TRY(petra_dataset_problem(problems, open_source(format, full, &self->sources[self->source_count++])));
    }
    return PETRA_OK;
  }
  if (split == PETRA_SPLIT_EVAL)
    return petra_fail(PETRA_CONFIG,
                      "data.path: %s is a single file, which is the training split and has no evaluation split; set "
                      "run.eval_every: 0, or give a folder that also holds %s",
                      path, names[0]);
  return petra_dataset_problem(problems, open_source(format, path, &self->sources[self->source_count++]));
}

bool petra_cifar_has_eval(const char *path) {
  struct stat info;
  return !path || stat(path, &info) != 0 || S_ISDIR(info.st_mode);
}

static petra_status check_labels(const cifar_format *format, const char *path, int64_t number, const uint8_t *record) {
  for (int i = 0; i < format->label_bytes; i++)
    if (record[i] >= format->labels[i].values)
      return petra_fail(PETRA_DATA, "%s: record %" PRId64 " (from 0) has the %s %d, expected 0 to %" PRId32, path,
                        number, format->labels[i].name, record[i], format->labels[i].values - 1);
  return PETRA_OK;
}

/* Reads and checks the labels of one file. Good records become records of the set. The label is the last label byte of
 * a record. */
static petra_status read_labels(const cifar_format *format, int from, int64_t *problems, cifar *self) {
  uint8_t bytes[RECORDS_AT_ONCE * (LABEL_BYTES_MAX + PIXEL_BYTES)];
  const source *file = &self->sources[from];
  const int64_t length = record_bytes(format);
  for (int64_t i = 0; i < file->records; i++) {
    const int64_t at = i % RECORDS_AT_ONCE, left = file->records - i;
    if (at == 0)
      PETRA_TRY(petra_file_read_at(&file->file, i * length, bytes,
                                   (size_t)((left < RECORDS_AT_ONCE ? left : RECORDS_AT_ONCE) * length)));
    const uint8_t *record = bytes + at * length;
    petra_status status = check_labels(format, file->file.path, i, record);
    PETRA_TRY(petra_dataset_problem(problems, status));
    if (status == PETRA_OK)
      self->records[self->base.count++] = (struct record){(uint32_t)i, (uint8_t)from, record[format->label_bytes - 1]};
  }
  return PETRA_OK;
}

static petra_status open_split(const cifar_format *format, const char *path, petra_split split, int64_t *problems,
                               cifar *self) {
  int64_t total = 0;
  PETRA_TRY(open_sources(format, path, split, problems, self));
  for (int i = 0; i < self->source_count; i++) {
    total += self->sources[i].records;
    if (self->sources[i].records > UINT32_MAX)
      return petra_fail(PETRA_UNSUPPORTED, "%s: %" PRId64 " records; at most %" PRIu32 " a file are possible",
                        self->sources[i].file.path, self->sources[i].records, UINT32_MAX);
  }
  PETRA_TRY(petra_allocate_raw(&self->records, (size_t)total, sizeof *self->records));
  for (int i = 0; i < self->source_count; i++)
    PETRA_TRY(petra_dataset_problem(problems, read_labels(format, i, problems, self)));
  return PETRA_OK;
}

petra_status petra_cifar_open(petra_cifar_kind kind, const char *path, petra_split split, int64_t *problems,
                              petra_dataset **out) {
  const cifar_format *format = &formats[kind];
  cifar *self;
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->label_bytes = format->label_bytes;
  self->base = (petra_dataset){.ops = &cifar_ops,
                               .height = SIDE,
                               .width = SIDE,
                               .classes = format->labels[format->label_bytes - 1].values,
                               .mean = {0.4914, 0.4822, 0.4465},
                               .deviation = {0.2023, 0.1994, 0.2010}};
  return petra_dataset_opened(&self->base, open_split(format, path, split, problems, self), out);
}
