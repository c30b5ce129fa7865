/* SPDX-License-Identifier: Apache-2.0 */
#include "data/token_set.h"

#include "base/hdf5.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/folder_list.h"
#include "data/hdf5_layout.h"
#include "data/token_file.h"
#include "data/windows.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct token_set {
  petra_dataset base;
  petra_token_file file;
  int64_t first; /* token of the file that is the first of the split */
} token_set;

static void token_set_destroy(petra_dataset *set) {
  token_set *self = (token_set *)set;
  petra_token_file_close(&self->file);
  petra_free(self);
}

static petra_status token_set_read(const petra_dataset *set, int64_t first, int64_t count, int32_t *tokens) {
  const token_set *self = (const token_set *)set;
  return petra_token_file_read(&self->file, set->classes, self->first + first, count, tokens);
}

static const petra_dataset_ops token_set_ops = {.destroy = token_set_destroy, .read_tokens = token_set_read};

/* --- which file --- */

typedef enum token_place { PLACE_FILE, PLACE_FOLDER, PLACE_HDF5 } token_place;

/* What data.path is. */
static petra_status place_of(const petra_config *config, token_place *out) {
  struct stat info;
  if (!*config->data.path)
    return petra_config_fail(config, "data.path", "is empty, expected a file of %s",
                             config->data.set == PETRA_SET_TEXT ? "text" : "tokens");
  *out = PLACE_FILE;
  if (config->data.set == PETRA_SET_TEXT)
    return PETRA_OK;
  const bool found = stat(config->data.path, &info) == 0;
  if (found && S_ISDIR(info.st_mode)) {
    *out = PLACE_FOLDER;
    return PETRA_OK;
  }
  const bool hdf5 = found && S_ISREG(info.st_mode) && petra_hdf5_is_file(config->data.path);
  if (hdf5 && *config->data.eval_path)
    return petra_config_fail(config, "data.eval_path",
                             "%s, but data.path is an HDF5 file, which has its own evaluation split; expected \"\"",
                             config->data.eval_path);
  *out = hdf5 ? PLACE_HDF5 : PLACE_FILE;
  return PETRA_OK;
}

static petra_status open_in_folder(const petra_config *config, petra_split split, petra_token_file *out) {
  char *path = NULL;
  PETRA_TRY(petra_folder_path(config->data.path, split == PETRA_SPLIT_TRAIN ? "train.bin" : "val.bin", NULL, &path));
  petra_status status = petra_token_file_open(path, "data.path", false, out);
  petra_free(path);
  return status;
}

/* `alone`: the file is that of this split alone. */
static petra_status open_file(const petra_config *config, petra_split split, petra_token_file *out, bool *alone) {
  const bool bytes = config->data.set == PETRA_SET_TEXT, beside = *config->data.eval_path != '\0';
  token_place place = PLACE_FILE;
  PETRA_TRY(place_of(config, &place));
  *alone = place != PLACE_FILE || beside;
  if (place == PLACE_HDF5)
    return petra_token_file_open_hdf5(config->data.path, split, out);
  if (split == PETRA_SPLIT_EVAL && beside)
    return petra_token_file_open(config->data.eval_path, "data.eval_path", bytes, out);
  if (place == PLACE_FOLDER)
    return open_in_folder(config, split, out);
  return petra_token_file_open(config->data.path, "data.path", bytes, out);
}

/* --- what is in it --- */

/* The split's part of a file. */
static petra_status part_of(const petra_config *config, petra_split split, bool alone, int64_t tokens, int64_t *first,
                            int64_t *count) {
  const int64_t train = (int64_t)((double)tokens * (1 - config->data.eval_share));
  const bool is_train = split == PETRA_SPLIT_TRAIN;
  if (!alone && !is_train && config->data.eval_share == 0)
    return petra_config_fail(config, "data.eval_share",
                             "0, so that there is no evaluation split; set run.eval_every: 0, or data.eval_path");
  *first = alone || is_train ? 0 : train;
  *count = alone ? tokens : is_train ? train : tokens - train;
  return PETRA_OK;
}

static petra_status fill(const petra_config *config, petra_split split, token_set *self) {
  bool alone;
  int32_t vocabulary;
  int64_t count = 0;
  PETRA_TRY(open_file(config, split, &self->file, &alone));
  PETRA_TRY(petra_windows_vocabulary(config, self->file.path, self->file.vocabulary, &vocabulary));
  PETRA_TRY(part_of(config, split, alone, self->file.tokens, &self->first, &count));
  return petra_windows_init(config, split, self->file.path, count, vocabulary, &self->base);
}

petra_status petra_token_set_open(const petra_config *config, petra_split split, petra_dataset **out) {
  token_set *self;
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->base.ops = &token_set_ops;
  self->file.fd = -1;
  petra_status status = fill(config, split, self);
  if (status != PETRA_OK)
    token_set_destroy(&self->base);
  else
    *out = &self->base;
  return status;
}

petra_status petra_token_set_has_eval(const petra_config *config, bool *out) {
  token_place place = PLACE_FILE;
  PETRA_TRY(place_of(config, &place));
  if (place == PLACE_HDF5)
    return petra_hdf5_layout_has_eval(config->data.path, out);
  *out = place == PLACE_FOLDER || *config->data.eval_path || config->data.eval_share > 0;
  return PETRA_OK;
}

petra_status petra_token_set_in_hdf5(const petra_config *config, bool *out) {
  token_place place = PLACE_FILE;
  PETRA_TRY(place_of(config, &place));
  *out = place == PLACE_HDF5;
  return PETRA_OK;
}

petra_status petra_token_set_shape(const petra_config *config, petra_dataset_shape *out) {
  petra_token_file file = {.fd = -1};
  bool alone;
  int32_t vocabulary = 0;
  petra_status status;
  PETRA_TRY(petra_windows_check(config));
  if (config->data.set == PETRA_SET_TEXT) {
    status = petra_windows_vocabulary(config, "data.set: text", PETRA_TOKEN_BYTES, &vocabulary);
  } else {
    status = open_file(config, PETRA_SPLIT_TRAIN, &file, &alone);
    if (status == PETRA_OK)
      status = petra_windows_vocabulary(config, file.path, file.vocabulary, &vocabulary);
    petra_token_file_close(&file);
  }
  PETRA_TRY(status);
  *out = (petra_dataset_shape){
      .samples = PETRA_SAMPLE_TOKENS, .classes = vocabulary, .context = (int32_t)config->model.context};
  return PETRA_OK;
}
