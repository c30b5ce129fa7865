/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* d_type, qsort_r */
#include "data/data_sets.h"

#include "base/log.h"
#include "base/mem.h"
#include "data/jpeg.h"
#include "data/resize.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* --- names --- */

/* Names, each of them once, stored one after the other. */
typedef struct name_list {
  char *bytes;
  size_t used;
  int64_t room;
  size_t *start; /* offset of each name in `bytes` */
  int64_t count, start_room;
} name_list;

static const char *get_name(const name_list *from, int64_t index) {
  return from->bytes + from->start[index];
}

static void name_list_fini(name_list *names) {
  PETRA_FREE_ALL(names->bytes, names->start);
}

static petra_status add_name(name_list *names, const char *text) {
  size_t length = strlen(text) + 1;
  PETRA_TRY(petra_array_reserve(&names->bytes, &names->room, (int64_t)(names->used + length), 1));
  PETRA_TRY(petra_array_reserve(&names->start, &names->start_room, names->count + 1, sizeof *names->start));
  memcpy(names->bytes + names->used, text, length);
  names->start[names->count++] = names->used;
  names->used += length;
  return PETRA_OK;
}

static int compare_names(const void *a, const void *b, void *bytes) {
  return strcmp((const char *)bytes + *(const size_t *)a, (const char *)bytes + *(const size_t *)b);
}

static void sort_names(name_list *names, int64_t from) {
  if (names->count - from > 1)
    qsort_r(names->start + from, (size_t)(names->count - from), sizeof *names->start, compare_names, names->bytes);
}

/* --- folders --- */

typedef enum entry_kind { ENTRY_FOLDER, ENTRY_FILE, ENTRY_OTHER } entry_kind;

/* Returns the kind of `entry`, following links; a link that leads nowhere is neither a file nor a folder. */
static entry_kind kind_of(DIR *folder, const struct dirent *entry) {
  struct stat about;
  if (entry->d_type == DT_DIR || entry->d_type == DT_REG)
    return entry->d_type == DT_DIR ? ENTRY_FOLDER : ENTRY_FILE;
  if (fstatat(dirfd(folder), entry->d_name, &about, 0) != 0)
    return ENTRY_OTHER;
  return S_ISDIR(about.st_mode) ? ENTRY_FOLDER : S_ISREG(about.st_mode) ? ENTRY_FILE : ENTRY_OTHER;
}

/* The result of a walk. */
typedef struct findings {
  name_list *names;
  int64_t left_out, *problems;
  char first_left_out[512]; /* cut if it is longer */
} findings;

typedef petra_status (*take_entry)(findings *at, const char *folder, const char *name, entry_kind kind);

/* Calls `take` for every entry of the folder that does not begin with a dot. */
static petra_status walk(const char *folder, take_entry take, findings *at) {
  DIR *stream = opendir(folder);
  if (!stream)
    return petra_fail(PETRA_IO, "%s: cannot be read: %s, expected a folder (data.path)", folder, strerror(errno));
  petra_status status = PETRA_OK;
  while (status == PETRA_OK) {
    errno = 0;
    const struct dirent *entry = readdir(stream);
    if (!entry) {
      if (errno)
        status = petra_fail(PETRA_IO, "%s: cannot be read: %s", folder, strerror(errno));
      break;
    }
    if (entry->d_name[0] != '.')
      status = take(at, folder, entry->d_name, kind_of(stream, entry));
  }
  closedir(stream);
  return status;
}

/* --- classes --- */

static petra_status take_class(findings *at, const char *folder, const char *name, entry_kind kind) {
  (void)folder;
  if (kind == ENTRY_FOLDER)
    return add_name(at->names, name);
  at->left_out++;
  return PETRA_OK;
}

/* Lists the classes: the folders in `root` that do not begin with a dot, numbered from 0 in the order of strcmp of
 * their names. Links are followed. Counts files beside the folders in *left_out. Errors: PETRA_IO: unreadable;
 * PETRA_DATA: no class. */
static petra_status list_classes(const char *root, name_list *out, int64_t *left_out) {
  findings at = {.names = out};
  PETRA_TRY(walk(root, take_class, &at));
  if (out->count == 0)
    return petra_fail(PETRA_DATA, "%s: contains no folders, expected one for each class, with its images", root);
  if (out->count > INT32_MAX)
    return petra_fail(PETRA_DATA, "%s: holds %" PRId64 " folders, at most %d classes are possible", root, out->count,
                      INT32_MAX);
  sort_names(out, 0);
  *left_out = at.left_out;
  return PETRA_OK;
}

/* --- files --- */

typedef struct folder_file {
  int32_t label;
  size_t name; /* in folder_list.names.bytes */
} folder_file;

typedef struct folder_list {
  name_list names;
  folder_file *files; /* as many files as names */
} folder_list;

static bool is_image_name(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);
}

static petra_status take_file(findings *at, const char *folder, const char *name, entry_kind kind) {
  if (!is_image_name(name)) {
    if (at->left_out++ == 0)
      snprintf(at->first_left_out, sizeof at->first_left_out, "%s", name);
    return PETRA_OK;
  }
  if (kind != ENTRY_FILE)
    return petra_dataset_problem(at->problems,
                                 petra_fail(PETRA_DATA, "%s/%s: is %s, expected a JPEG file", folder, name,
                                            kind == ENTRY_FOLDER ? "a folder" : "neither a file nor a link to one"));
  return add_name(at->names, name);
}

/* Appends the sorted files of one class folder to the names. */
static petra_status list_class(const char *root, const char *class, findings *at) {
  PETRA_FREED char *folder = NULL;
  int64_t before = at->names->count;
  PETRA_TRY(petra_folder_path(root, class, NULL, &folder));
  petra_status status = petra_dataset_problem(at->problems, walk(folder, take_file, at));
  if (status == PETRA_OK && at->names->count == before)
    status = petra_dataset_problem(
        at->problems,
        petra_fail(PETRA_DATA, "%s: a class without images, expected at least one file named .jpg or .jpeg", folder));
  sort_names(at->names, before);
  return status;
}

typedef struct split_class {
  int32_t label;
  int64_t next, end; /* names that are not placed yet */
} split_class;

/* Places the first file of every class, the second of every class, and so on. Classes without more files are
 * dropped. */
static petra_status interleave(folder_list *list, split_class *classes, int64_t count) {
  int64_t placed = 0;
  PETRA_TRY(petra_allocate_raw(&list->files, (size_t)list->names.count, sizeof *list->files));
  while (count > 0) {
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++) {
      split_class at = classes[i];
      if (at.next == at.end)
        continue;
      list->files[placed++] = (folder_file){at.label, list->names.start[at.next++]};
      classes[left++] = at;
    }
    count = left;
  }
  return PETRA_OK;
}

/* Folders and classes are sorted. */
static petra_status list_folders(const char *root, const name_list *folders, const name_list *classes, findings *at,
                                 split_class *out, int64_t *count) {
  int64_t label = 0;
  for (int64_t i = 0; i < folders->count; i++) {
    const char *name = get_name(folders, i);
    const int64_t before = at->names->count;
    while (label < classes->count && strcmp(get_name(classes, label), name) < 0)
      label++;
    if (label == classes->count || strcmp(get_name(classes, label), name) != 0) {
      PETRA_TRY(petra_dataset_problem(
          at->problems,
          petra_fail(PETRA_DATA,
                     "%s/%s: a class that the training split has no folder for, expected one of its %" PRId64
                     " classes",
                     root, name, classes->count)));
      continue;
    }
    PETRA_TRY(list_class(root, name, at));
    out[(*count)++] = (split_class){(int32_t)label, before, at->names->count};
  }
  return PETRA_OK;
}

/* Lists the files of `root` whose names end in .jpg or .jpeg, in small or capital letters, in this order: the first
 * file of every class, the second of every class, and so on, classes by number, files of a class by strcmp. So any
 * first part of the list covers all classes. Skips files that begin with a dot. Also skips files with other names, with
 * a warning that counts them. Every folder of `root` must be one of `classes`. Errors: PETRA_DATA: a class without
 * images, a class that is not in `classes`, an image name that does not name a file. `problems` as in
 * petra_dataset_open_counting. */
static petra_status list_files(const char *root, const name_list *classes, int64_t *problems, folder_list *out) {
  PETRA_FINISHED(name_list_fini) name_list folders = {0};
  PETRA_FREED split_class *split = NULL;
  int64_t beside = 0, count = 0;
  findings at = {.names = &out->names, .problems = problems};
  PETRA_TRY(list_classes(root, &folders, &beside));
  PETRA_TRY(petra_allocate(&split, (size_t)folders.count, sizeof *split));
  PETRA_TRY(list_folders(root, &folders, classes, &at, split, &count));
  PETRA_TRY(interleave(out, split, count));
  int64_t left_out = beside + at.left_out;
  if (left_out > 0)
    petra_log(PETRA_LOG_WARNING, "%s: %" PRId64 " entr%s not named .jpg or .jpeg %s left out%s%s", root, left_out,
              left_out == 1 ? "y" : "ies", left_out == 1 ? "is" : "are", at.first_left_out[0] ? ", such as " : "",
              at.first_left_out);
  return PETRA_OK;
}

/* --- images --- */

static const int64_t size_max = INT64_C(1) << 30; /* maximum size of a file */

/* Below this size reductions gain nothing, and different reductions may give the same size. */
enum { REDUCED_SIZE_MIN = 16 };

typedef struct imagefolder {
  petra_dataset base;
  char *root; /* the folder of the classes */
  int32_t resize;
  name_list classes;
  folder_list list;
} imagefolder;

/* A file that was read and parsed. */
typedef struct image_file {
  petra_file file;
  uint8_t *bytes;
  petra_jpeg_header header;
} image_file;

static void imagefolder_destroy(petra_dataset *set) {
  imagefolder *self = (imagefolder *)set;
  name_list_fini(&self->list.names);
  name_list_fini(&self->classes);
  PETRA_FREE_ALL(self->list.files, self->root, self);
}

static void image_file_fini(image_file *image) {
  petra_file_close(&image->file);
  petra_free(image->bytes);
}

/* Reads and parses the file of a record. Call image_file_fini even after a failure. */
static petra_status read_file(const imagefolder *self, int64_t index, image_file *out) {
  const folder_file *entry = &self->list.files[index];
  PETRA_FREED char *path = NULL;
  PETRA_TRY(petra_folder_path(self->root, get_name(&self->classes, entry->label), self->list.names.bytes + entry->name,
                              &path));
  PETRA_TRY(petra_file_open(path, "a JPEG image", &out->file));
  const int64_t size = out->file.bytes;
  if (size == 0)
    return petra_fail(PETRA_DATA, "%s: the file is empty, expected a JPEG image", path);
  if (size > size_max)
    return petra_fail(PETRA_DATA, "%s: the file has %" PRId64 " bytes, expected a JPEG image of at most %" PRId64, path,
                      size, size_max);
  PETRA_TRY(petra_allocate_raw(&out->bytes, (size_t)size, 1));
  PETRA_TRY(petra_file_read_at(&out->file, 0, out->bytes, (size_t)size));
  return petra_jpeg_header_read(out->bytes, (size_t)size, path, &out->header);
}

/* Returns the largest reduction that leaves the window at least `size` pixels in both directions. */
static int choose_reduction(const petra_crop *window, int32_t size) {
  int32_t shorter = window->height < window->width ? window->height : window->width;
  int reduction = 1;
  while (size >= REDUCED_SIZE_MIN && reduction < 8 && shorter / (2 * reduction) >= size)
    reduction *= 2;
  return reduction;
}

/* The interval `start` .. `start + length` of the image, in pixels of the decoded image, which are `reduction` times as
 * large. */
static petra_resize_axis window_axis(int32_t start, int32_t length, int reduction, int32_t decoded, int32_t size) {
  petra_resize_axis axis = {
      .from = (double)start / reduction, .to = (double)(start + length) / reduction, .count = size, .kept = size};
  axis.low = (int32_t)floor(axis.from);
  axis.high = (int32_t)fmin(decoded, ceil(axis.to));
  return axis;
}

/* Gets a random window of the image or, if `rng` is NULL, its resized centre. */
static petra_status read_view(const imagefolder *self, const image_file *image, petra_rng *rng, uint8_t *pixels) {
  const int32_t size = self->base.height;
  int32_t height = image->header.height, width = image->header.width;
  petra_resize_axis rows, columns;
  petra_crop window;
  int reduction = 1;
  PETRA_FREED uint8_t *rgb = NULL;
  if (rng) {
    window = petra_crop_random(rng, height, width);
    reduction = choose_reduction(&window, size);
    height = (height + reduction - 1) / reduction;
    width = (width + reduction - 1) / reduction;
    rows = window_axis(window.top, window.height, reduction, height, size);
    columns = window_axis(window.left, window.width, reduction, width, size);
  } else {
    int32_t resized_height, resized_width;
    petra_crop_centre(height, width, self->resize, size, &resized_height, &resized_width, &window);
    rows = (petra_resize_axis){
        .to = height, .high = height, .count = resized_height, .first = window.top, .kept = window.height};
    columns = (petra_resize_axis){
        .to = width, .high = width, .count = resized_width, .first = window.left, .kept = window.width};
  }
  PETRA_TRY(petra_allocate_raw(&rgb, (size_t)width * (size_t)height, 3));
  PETRA_TRY(
      petra_jpeg_decode(image->bytes, (size_t)image->file.bytes, image->file.path, &image->header, reduction, rgb));
  return petra_resize(rgb, width, &rows, &columns, pixels);
}

static petra_status imagefolder_read_window(const petra_dataset *set, int64_t index, petra_rng *rng, uint8_t *pixels,
                                            int32_t *label) {
  const imagefolder *self = (const imagefolder *)set;
  PETRA_FINISHED(image_file_fini) image_file image = {0};
  PETRA_TRY(read_file(self, index, &image));
  PETRA_TRY(read_view(self, &image, rng, pixels));
  *label = self->list.files[index].label;
  return PETRA_OK;
}

static petra_status imagefolder_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  return imagefolder_read_window(set, index, NULL, pixels, label);
}

static int32_t imagefolder_label(const petra_dataset *set, int64_t index) {
  return ((const imagefolder *)set)->list.files[index].label;
}

static petra_status imagefolder_stored(const petra_dataset *set, int64_t index, petra_stored_image *out) {
  PETRA_FINISHED(image_file_fini) image_file image = {0};
  PETRA_TRY(read_file((const imagefolder *)set, index, &image));
  *out = (petra_stored_image){image.header.height, image.header.width, image.header.turned};
  return PETRA_OK;
}

static const char *imagefolder_class_name(const petra_dataset *set, int32_t label) {
  return get_name(&((const imagefolder *)set)->classes, label);
}

static const petra_dataset_ops imagefolder_ops = {.destroy = imagefolder_destroy,
                                                  .read = imagefolder_read,
                                                  .label = imagefolder_label,
                                                  .read_window = imagefolder_read_window,
                                                  .stored = imagefolder_stored,
                                                  .class_name = imagefolder_class_name};

static bool holds_folder(const char *path, const char *name) {
  struct stat about;
  PETRA_FREED char *full = NULL;
  return petra_folder_path(path, name, NULL, &full) == PETRA_OK && stat(full, &about) == 0 && S_ISDIR(about.st_mode);
}

bool petra_imagefolder_has_eval(const char *path) {
  return holds_folder(path, "val");
}

/* The class folders of the training split and of the requested split. Free with petra_free, also after a failure. */
static petra_status find_roots(const char *path, petra_split split, char **train, char **root) {
  bool has_train = holds_folder(path, "train"), has_eval = holds_folder(path, "val");
  if (split == PETRA_SPLIT_EVAL && !has_eval)
    return petra_fail(
        PETRA_CONFIG,
        "data.path: %s holds no folder val and so has no evaluation split; set run.eval_every: 0, or add it", path);
  if (has_eval && !has_train)
    return petra_fail(PETRA_DATA, "data.path: %s holds a folder val but no folder train, expected both", path);
  PETRA_TRY(has_train ? petra_folder_path(path, "train", NULL, train) : petra_duplicate_string(train, path));
  return split == PETRA_SPLIT_EVAL ? petra_folder_path(path, "val", NULL, root) : petra_duplicate_string(root, *train);
}

static petra_status check(const petra_config *config) {
  struct stat about;
  const char *path = config->data.path;
  if (!petra_jpeg_decoder())
    return petra_fail(PETRA_UNSUPPORTED, "data.set: imagefolder needs libjpeg-turbo, which this build lacks; install "
                                         "it (Debian: libjpeg-dev), then configure and build again");
  if (config->data.resize < config->data.image_size)
    return petra_config_fail(config, "data.resize", "%lld is below data.image_size: %lld, expected at least that",
                             (long long)config->data.resize, (long long)config->data.image_size);
  if (!path || !*path)
    return petra_fail(PETRA_CONFIG, "data.path: is empty, expected the folder that holds train and val");
  if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
    return petra_fail(PETRA_IO, "data.path: %s: no such folder, expected one that holds train and val", path);
  return PETRA_OK;
}

static petra_status fill(imagefolder *self, const petra_config *config, petra_split split, int64_t *problems) {
  PETRA_FREED char *train = NULL;
  int64_t beside;
  PETRA_TRY(find_roots(config->data.path, split, &train, &self->root));
  PETRA_TRY(list_classes(train, &self->classes, &beside));
  PETRA_TRY(list_files(self->root, &self->classes, problems, &self->list));
  self->base.count = self->list.names.count;
  self->base.classes = (int32_t)self->classes.count;
  return PETRA_OK;
}

petra_status petra_imagefolder_open(const petra_config *config, petra_split split, int64_t *problems,
                                    petra_dataset **out) {
  imagefolder *self = NULL;
  const int32_t size = (int32_t)config->data.image_size;
  PETRA_TRY(check(config));
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->resize = (int32_t)config->data.resize;
  /* The moments of ImageNet's training images' pixels / 255, as the field uses them (docs/semantics/data.md). */
  self->base = (petra_dataset){.ops = &imagefolder_ops,
                               .height = size,
                               .width = size,
                               .mean = {0.485, 0.456, 0.406},
                               .deviation = {0.229, 0.224, 0.225}};
  return petra_dataset_opened(&self->base, fill(self, config, split, problems), out);
}
