/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data_sets.h"

#include "base/log.h"
#include "base/mem.h"
#include "data/jpeg.h"
#include "data/resize.h"

#include <math.h>
#include <sys/stat.h>

/* Below this size reductions gain nothing, and different reductions may give the same size. */
enum { REDUCED_SIZE_MIN = 16 };

typedef struct imagefolder {
  petra_dataset base;
  char *root; /* the folder of the classes */
  int32_t resize;
  petra_names classes;
  petra_folder_list list;
} imagefolder;

/* A file that was read and parsed. */
typedef struct image_file {
  char *path;
  uint8_t *bytes;
  size_t size;
  petra_jpeg_header header;
} image_file;

static void imagefolder_destroy(petra_dataset *set) {
  imagefolder *self = (imagefolder *)set;
  petra_folder_list_fini(&self->list);
  petra_names_fini(&self->classes);
  petra_free(self->root);
  petra_free(self);
}

static void image_file_fini(image_file *file) {
  petra_free(file->path);
  petra_free(file->bytes);
}

static petra_status image_file_init(image_file *file, const imagefolder *self, int64_t index) {
  const petra_folder_file *entry = &self->list.files[index];
  *file = (image_file){0};
  PETRA_TRY(petra_folder_path(self->root, petra_names_get(&self->classes, entry->label),
                              self->list.names.bytes + entry->name, &file->path));
  petra_status status = petra_file_bytes(file->path, "a JPEG image", &file->bytes, &file->size);
  if (status == PETRA_OK)
    status = petra_jpeg_header_read(file->bytes, file->size, file->path, &file->header);
  if (status != PETRA_OK)
    image_file_fini(file);
  return status;
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
static petra_status read_view(const imagefolder *self, const image_file *file, petra_rng *rng, uint8_t *pixels) {
  const int32_t size = self->base.height;
  int32_t height = file->header.height, width = file->header.width;
  petra_resize_axis rows, columns;
  petra_crop window;
  int reduction = 1;
  uint8_t *rgb = NULL;
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
  petra_status status = petra_jpeg_decode(file->bytes, file->size, file->path, &file->header, reduction, rgb);
  if (status == PETRA_OK)
    status = petra_resize(rgb, width, &rows, &columns, pixels);
  petra_free(rgb);
  return status;
}

static petra_status imagefolder_read_window(const petra_dataset *set, int64_t index, petra_rng *rng, uint8_t *pixels,
                                            int32_t *label) {
  const imagefolder *self = (const imagefolder *)set;
  image_file file;
  PETRA_TRY(image_file_init(&file, self, index));
  petra_status status = read_view(self, &file, rng, pixels);
  image_file_fini(&file);
  if (status == PETRA_OK)
    *label = self->list.files[index].label;
  return status;
}

static petra_status imagefolder_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  return imagefolder_read_window(set, index, NULL, pixels, label);
}

static int32_t imagefolder_label(const petra_dataset *set, int64_t index) {
  return ((const imagefolder *)set)->list.files[index].label;
}

static petra_status imagefolder_stored(const petra_dataset *set, int64_t index, petra_stored_image *out) {
  image_file file;
  PETRA_TRY(image_file_init(&file, (const imagefolder *)set, index));
  *out = (petra_stored_image){file.header.height, file.header.width, file.header.turned};
  image_file_fini(&file);
  return PETRA_OK;
}

static const char *imagefolder_class_name(const petra_dataset *set, int32_t label) {
  return petra_names_get(&((const imagefolder *)set)->classes, label);
}

static const petra_dataset_ops imagefolder_ops = {.destroy = imagefolder_destroy,
                                                  .read = imagefolder_read,
                                                  .label = imagefolder_label,
                                                  .read_window = imagefolder_read_window,
                                                  .stored = imagefolder_stored,
                                                  .class_name = imagefolder_class_name};

static bool holds_folder(const char *path, const char *name) {
  struct stat about;
  char *full;
  if (petra_folder_path(path, name, NULL, &full) != PETRA_OK)
    return false;
  bool folder = stat(full, &about) == 0 && S_ISDIR(about.st_mode);
  petra_free(full);
  return folder;
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
  char *train = NULL;
  int64_t beside;
  petra_status status;
  PETRA_TRY_GOTO(status, find_roots(config->data.path, split, &train, &self->root), done);
  PETRA_TRY_GOTO(status, petra_folder_classes(train, &self->classes, &beside), done);
  PETRA_TRY_GOTO(status, petra_folder_files(self->root, &self->classes, problems, &self->list), done);
  self->base.count = self->list.count;
  self->base.classes = (int32_t)self->classes.count;
done:
  petra_free(train);
  return status;
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
