/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/tensor_archive.h"

#include "backend/tensor.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { ABOUT = 8 }; /* kind, shape, account (-1: none), category, identity */

/* No stage has a tensor with more elements; the padding that a layout adds to this many can still be counted. */
enum { ELEMENTS_MAX = 1 << 30 };

void petra_tensor_archive_fini(petra_tensor_archive *tensors) {
  petra_free(tensors->known);
  *tensors = (petra_tensor_archive){0};
}

void petra_tensor_archive_part(petra_tensor_archive *tensors, petra_archive *archive, int32_t part,
                               petra_account *own) {
  tensors->archive = archive;
  tensors->part = part;
  tensors->own = own;
  tensors->first = tensors->count;
}

/* Values are transferred through host arrays of this type. */
static petra_host_type host_type(const petra_tensor_archive *tensors, petra_tensor_kind kind) {
  if (kind == PETRA_TENSOR_QUANTISED || kind == PETRA_TENSOR_MASK)
    return PETRA_HOST_U8;
  return tensors->backend->element_bytes[kind] > sizeof(float) ? PETRA_HOST_F64 : PETRA_HOST_F32;
}

/* Transfers the values of a tensor like `like`, in the given shape or, of a mask, as its bytes; if `host` is NULL, only
 * checks that they are in the file. */
static petra_status host_values(petra_tensor_archive *tensors, const char *name, const petra_tensor *like, int rank,
                                const int32_t *shape, void *host) {
  static const petra_archive_type types[] = {
      [PETRA_HOST_F32] = PETRA_ARCHIVE_F32, [PETRA_HOST_F64] = PETRA_ARCHIVE_F64, [PETRA_HOST_U8] = PETRA_ARCHIVE_U8};
  int64_t extent[4];
  if (like->kind == PETRA_TENSOR_MASK)
    return petra_archive_values(tensors->archive, name, PETRA_ARCHIVE_U8,
                                (int64_t)petra_tensor_storage_bytes(tensors->backend, like), host);
  for (int d = 0; d < rank; d++)
    extent[d] = shape[d];
  return tensors->archive->ops->values(tensors->archive, name, types[host_type(tensors, like->kind)], rank, extent,
                                       host);
}

/* Uses a host array, because the memory of a backend may lie on a device. */
petra_status petra_tensor_archive_content(petra_tensor_archive *tensors, const char *name, petra_tensor *tensor,
                                          int rank, const int32_t *shape) {
  const bool reading = tensors->archive->reading;
  const petra_host_type type = host_type(tensors, tensor->kind);
  PETRA_FREED void *host = NULL;
  PETRA_TRY(
      petra_allocate_raw(&host, type == PETRA_HOST_U8 ? tensor->bytes : (size_t)tensor->elements * sizeof(double), 1));
  if (!reading)
    PETRA_TRY(petra_op_download(tensors->backend, tensor, host, type));
  PETRA_TRY(host_values(tensors, name, tensor, rank, shape, host));
  return reading ? petra_op_upload(tensors->backend, tensor, host, type) : PETRA_OK;
}

static int64_t account_index(const petra_tensor_archive *tensors, const petra_account *account) {
  for (int i = 0; account && i < tensors->account_count; i++)
    if (tensors->accounts[i] == account)
      return i;
  return -1;
}

/* Gets the tensor that `about` describes, without its values; returns false if it describes none. */
static bool describe(const petra_tensor_archive *tensors, const int64_t *about, petra_tensor *out) {
  bool sound = about[0] >= 0 && about[0] < PETRA_TENSOR_KINDS && about[5] >= -1 && about[5] < tensors->account_count &&
               about[6] >= 0 && about[6] < PETRA_MEMORY_CATEGORIES;
  *out = (petra_tensor){.elements = 1, .kind = (petra_tensor_kind)about[0]};
  for (int d = 0; d < 4 && sound; d++) {
    sound = about[1 + d] >= 1 && about[1 + d] <= ELEMENTS_MAX / out->elements;
    out->shape[d] = sound ? (int32_t)about[1 + d] : 1;
    out->elements *= out->shape[d];
  }
  return sound;
}

/* Returns a tensor of an earlier part; NULL: none has this identity. */
static petra_tensor *of_earlier_part(const petra_tensor_archive *tensors, int64_t identity) {
  for (int64_t i = tensors->first - 1; i >= 0; i--)
    if (tensors->known[i].identity == identity)
      return tensors->known[i].tensor;
  return NULL;
}

/* Makes the tensor that `about` describes, or shares the tensor of an earlier part. */
static petra_status make(petra_tensor_archive *tensors, const char *name, const int64_t *about, bool *shared,
                         petra_tensor **out) {
  petra_tensor like;
  char item[96];
  if (!describe(tensors, about, &like))
    return petra_archive_refuse(tensors->archive, name, "describes no tensor");
  petra_tensor *known = of_earlier_part(tensors, about[7]);
  *shared = known != NULL;
  if (known && (known->kind != like.kind || memcmp(known->shape, like.shape, sizeof like.shape) != 0))
    return petra_archive_refuse(tensors->archive, name, "differs from the tensor in an earlier part");
  if (known) {
    *out = petra_tensor_retain(known);
    return PETRA_OK;
  }
  snprintf(item, sizeof item, "%s.values", name);
  PETRA_TRY(host_values(tensors, item, &like, 4, like.shape, NULL)); /* before room is made for them */
  petra_account *account = about[5] < 0 ? NULL : tensors->accounts[about[5]];
  return petra_tensor_create(tensors->backend, like.kind, like.shape,
                             about[5] >= 0 && !account ? tensors->own : account, (petra_memory_category)about[6], out);
}

/* Gets the tensor of an earlier part, or a new one. */
static int64_t identity_of(const petra_tensor_archive *tensors, const petra_tensor *tensor) {
  for (int64_t i = tensors->first - 1; i >= 0; i--)
    if (tensors->known[i].tensor == tensor)
      return tensors->known[i].identity;
  return (int64_t)tensors->part << 32 | (tensors->count - tensors->first);
}

/* Adds a tensor that is new in this part. */
static petra_status archive_tensor(petra_tensor_archive *tensors, const char *name, petra_tensor **tensor) {
  petra_archive *archive = tensors->archive;
  int64_t about[ABOUT];
  char item[96];
  bool shared = false;
  petra_tensor *one = *tensor;
  if (!archive->reading) {
    about[0] = one->kind;
    for (int d = 0; d < 4; d++)
      about[1 + d] = one->shape[d];
    about[5] = account_index(tensors, one->account);
    about[6] = one->category;
    about[7] = identity_of(tensors, one);
  }
  snprintf(item, sizeof item, "%s.about", name);
  PETRA_TRY(petra_archive_integers(archive, item, about, ABOUT));
  if (archive->reading) {
    PETRA_TRY(make(tensors, name, about, &shared, &one));
    *tensor = one; /* the holder owns it from now on, whatever follows */
  }
  PETRA_TRY(petra_array_reserve(&tensors->known, &tensors->capacity, tensors->count + 1, sizeof *tensors->known));
  tensors->known[tensors->count++] = (petra_known_tensor){one, about[7]};
  snprintf(item, sizeof item, "%s.values", name);
  return shared ? PETRA_OK : petra_tensor_archive_content(tensors, item, one, 4, one->shape);
}

/* Returns its number within this part; -1: it has not occurred yet. */
static int64_t find(const petra_tensor_archive *tensors, const petra_tensor *tensor) {
  for (int64_t i = tensors->count - 1; i >= tensors->first; i--)
    if (tensors->known[i].tensor == tensor)
      return i - tensors->first;
  return -1;
}

petra_status petra_tensor_archive_references(petra_tensor_archive *tensors, const char *name,
                                             petra_tensor **const *references, int count) {
  petra_archive *archive = tensors->archive;
  PETRA_FREED int64_t *index = NULL;
  int64_t known = tensors->count - tensors->first;
  PETRA_TRY(petra_allocate(&index, (size_t)count, sizeof *index));
  for (int i = 0; i < count && !archive->reading; i++) { /* -1: none; new tensors come in order */
    index[i] = *references[i] ? find(tensors, *references[i]) : -1;
    for (int k = 0; k < i && *references[i] && index[i] < 0; k++)
      if (*references[k] == *references[i])
        index[i] = index[k];
    if (*references[i] && index[i] < 0)
      index[i] = known++;
  }
  PETRA_TRY(petra_archive_integers(archive, name, index, count));
  for (int i = 0; i < count; i++) {
    char item[80];
    if (index[i] < -1 || index[i] > tensors->count - tensors->first)
      return petra_archive_refuse(archive, name, "refers to a tensor that is missing");
    snprintf(item, sizeof item, "%s.%d", name, i);
    if (index[i] == tensors->count - tensors->first)
      PETRA_TRY(archive_tensor(tensors, item, references[i]));
    else if (index[i] >= 0 && archive->reading)
      *references[i] = petra_tensor_retain(tensors->known[tensors->first + index[i]].tensor);
  }
  return PETRA_OK;
}

petra_tensor_form petra_tensor_form_of(const petra_tensor *tensor) {
  petra_tensor_form form = {PETRA_PRESENT, tensor->kind, {0}};
  memcpy(form.shape, tensor->shape, sizeof form.shape);
  return form;
}

/* Returns true if the tensor has the form; the first tensor with samples sets their number. */
static bool fits(petra_tensor_archive *tensors, const petra_tensor *tensor, const petra_tensor_form *form) {
  if (!tensor || form->presence == PETRA_ABSENT)
    return tensor ? form->presence != PETRA_ABSENT : form->presence != PETRA_PRESENT;
  int32_t first = form->shape[0];
  if (first == 0 && tensors->images == 0)
    tensors->images = tensor->shape[0];
  if (first == 0)
    first = tensors->images;
  return tensor->kind == form->kind && tensor->shape[0] == first &&
         memcmp(tensor->shape + 1, form->shape + 1, 3 * sizeof *form->shape) == 0;
}

petra_status petra_tensor_archive_check(petra_tensor_archive *tensors, const char *name,
                                        petra_tensor **const *references, const petra_tensor_form *forms, int count) {
  for (int i = 0; i < count && tensors->archive->reading; i++)
    if (!fits(tensors, *references[i], &forms[i]))
      return petra_archive_refuse(tensors->archive, name, "place %d holds %s", i,
                                  *references[i] ? "a tensor that does not belong there" : "no tensor");
  return PETRA_OK;
}
