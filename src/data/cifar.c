#include "data/cifar.h"

#include "base/log.h"
#include "base/mem.h"
#include "data/file_bytes.h"
#include "data/folder_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 32, PIXEL_BYTES = 3 * SIDE * SIDE, LABEL_BYTES_MAX = 2, FILES_MAX = 5 };

typedef struct label_byte {
  const char *name; /* in messages */
  int32_t values;
} label_byte;

typedef struct cifar_format {
  const char *set; /* as in data.set */
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

typedef struct cifar {
  petra_dataset base;
  int label_bytes;
  uint8_t *records;
} cifar;

/* One file of the split, open for reading. */
typedef struct source {
  char *path;
  FILE *file;
  int64_t records;
} source;

static int64_t record_bytes(const cifar_format *format) {
  return format->label_bytes + PIXEL_BYTES;
}

static void cifar_destroy(petra_dataset *set) {
  cifar *self = (cifar *)set;
  petra_free(self->records);
  petra_free(self);
}

static petra_status cifar_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  const cifar *self = (const cifar *)set;
  const uint8_t *record = self->records + index * (self->label_bytes + PIXEL_BYTES);
  memcpy(pixels, record + self->label_bytes, PIXEL_BYTES);
  *label = record[self->label_bytes - 1];
  return PETRA_OK;
}

static int32_t cifar_label(const petra_dataset *set, int64_t index) {
  const cifar *self = (const cifar *)set;
  return self->records[index * (self->label_bytes + PIXEL_BYTES) + self->label_bytes - 1];
}

static const petra_dataset_ops cifar_ops = {.destroy = cifar_destroy, .read = cifar_read, .label = cifar_label};

/* The size must be a whole number of records; *records is set to it, rounded down, in any case. A likely reason is
 * named: the file of the other set. */
static petra_status check_size(const cifar_format *format, const char *path, int64_t bytes, int64_t *records) {
  int64_t length = record_bytes(format);
  *records = bytes / length;
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

/* Takes over `path` in any case. */
static petra_status open_source(const cifar_format *format, char *path, source *out) {
  char what[64];
  int64_t bytes;
  int fd;
  *out = (source){.path = path};
  snprintf(what, sizeof what, "a file of %s records (data.path)", format->set);
  PETRA_TRY(petra_file_open(path, what, &fd, &bytes));
  out->file = fdopen(fd, "rb");
  if (!out->file) {
    close(fd);
    return petra_fail(PETRA_IO, "%s: cannot be opened: %s", path, strerror(errno));
  }
  return check_size(format, path, bytes, &out->records);
}

/* Opens the files that `path` stands for. `count` is counted up as they are opened, also on failure. */
static petra_status open_sources(const cifar_format *format, const char *path, petra_split split, int64_t *problems,
                                 source *sources, int *count) {
  const char *const *names = split == PETRA_SPLIT_TRAIN ? format->train : format->eval;
  struct stat info;
  char *full = NULL;
  if (!path || !*path)
    return petra_fail(PETRA_CONFIG, "data.path: is empty, expected the folder of the %s files or one such file",
                      format->set);
  if (stat(path, &info) != 0)
    return petra_fail(PETRA_IO, "data.path: %s: %s, expected a folder that holds %s or one file of %s records", path,
                      strerror(errno), names[0], format->set);
  if (S_ISDIR(info.st_mode)) {
    for (int i = 0; names[i]; i++) {
      PETRA_TRY(petra_folder_path(path, names[i], NULL, &full));
      PETRA_TRY(petra_dataset_problem(problems, open_source(format, full, &sources[(*count)++])));
    }
    return PETRA_OK;
  }
  if (split == PETRA_SPLIT_EVAL)
    return petra_fail(PETRA_CONFIG,
                      "data.path: %s is a single file, which is the training split and has no evaluation split; set "
                      "run.eval_every: 0, or give a folder that also holds %s",
                      path, names[0]);
  PETRA_TRY(petra_duplicate_string(&full, path));
  return petra_dataset_problem(problems, open_source(format, full, &sources[(*count)++]));
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

/* Reads and checks all records of one file; the first `keep` good ones are stored at `records`, *kept of them. */
static petra_status read_source(const cifar_format *format, const source *from, uint8_t *records, int64_t keep,
                                int64_t *problems, int64_t *kept) {
  uint8_t scratch[LABEL_BYTES_MAX + PIXEL_BYTES];
  size_t length = (size_t)record_bytes(format);
  for (int64_t i = 0; i < from->records; i++) {
    uint8_t *record = *kept < keep ? records + (size_t)*kept * length : scratch;
    errno = 0;
    if (fread(record, length, 1, from->file) != 1)
      return petra_fail(PETRA_IO, "%s: record %" PRId64 " (from 0) of %" PRId64 " cannot be read: %s", from->path, i,
                        from->records, ferror(from->file) ? strerror(errno) : "the file became shorter");
    petra_status status = check_labels(format, from->path, i, record);
    PETRA_TRY(petra_dataset_problem(problems, status));
    *kept += status == PETRA_OK && *kept < keep;
  }
  return PETRA_OK;
}

petra_status petra_cifar_open(petra_cifar_kind kind, const char *path, petra_split split, int64_t limit,
                              int64_t *problems, petra_dataset **out) {
  const cifar_format *format = &formats[kind];
  source sources[FILES_MAX];
  int count = 0;
  int64_t total = 0, stored = 0;
  cifar *self = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, open_sources(format, path, split, problems, sources, &count), close);
  for (int i = 0; i < count; i++)
    total += sources[i].records;
  if (limit > 0 && limit < total)
    total = limit;
  PETRA_TRY_GOTO(status, petra_allocate(&self, 1, sizeof *self), close);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&self->records, (size_t)total, (size_t)record_bytes(format)), close);
  for (int i = 0; i < count; i++) {
    int64_t keep = sources[i].records < total - stored ? sources[i].records : total - stored, kept = 0;
    status = read_source(format, &sources[i], self->records + stored * record_bytes(format), keep, problems, &kept);
    PETRA_TRY_GOTO(status, petra_dataset_problem(problems, status), close);
    stored += kept;
  }
  self->label_bytes = format->label_bytes;
  self->base = (petra_dataset){.ops = &cifar_ops,
                               .count = stored,
                               .height = SIDE,
                               .width = SIDE,
                               .classes = format->labels[format->label_bytes - 1].values,
                               .mean = {0.4914, 0.4822, 0.4465},
                               .deviation = {0.2023, 0.1994, 0.2010}};
  *out = &self->base;
close:
  if (status != PETRA_OK && self)
    cifar_destroy(&self->base);
  for (int i = 0; i < count; i++) {
    if (sources[i].file)
      fclose(sources[i].file);
    petra_free(sources[i].path);
  }
  return status;
}
