#include "backend/tensor_archive.h"

#include "backend/ops.h"
#include "backend/pool.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { ABOUT = 7 }; /* kind, shape, account (-1: none), category */

/* No stage has a tensor of more; what a layout adds to so many can still be counted. */
enum { ELEMENTS_MAX = 1 << 30 };

void petra_tensor_archive_fini(petra_tensor_archive *tensors) {
  petra_free(tensors->known);
  *tensors = (petra_tensor_archive){0};
}

/* Values go through host arrays of this type. */
static bool is_wide(const petra_tensor_archive *tensors, petra_tensor_kind kind) {
  return tensors->backend->element_bytes[kind] > sizeof(float);
}

/* Values of the shape; `host` NULL: only that they are in the file. */
static petra_status host_values(petra_tensor_archive *tensors, const char *name, bool wide, int rank,
                                const int32_t *shape, void *host) {
  int64_t extent[4];
  for (int d = 0; d < rank; d++)
    extent[d] = shape[d];
  return tensors->archive->ops->values(tensors->archive, name, wide ? PETRA_ARCHIVE_F64 : PETRA_ARCHIVE_F32, rank,
                                       extent, host);
}

petra_status petra_tensor_archive_content(petra_tensor_archive *tensors, const char *name, petra_tensor *tensor,
                                          int rank, const int32_t *shape) {
  const bool wide = is_wide(tensors, tensor->kind), reading = tensors->archive->reading;
  petra_host_type type = wide ? PETRA_HOST_F64 : PETRA_HOST_F32;
  void *host;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate_raw(&host, (size_t)tensor->elements, wide ? sizeof(double) : sizeof(float)));
  if (!reading)
    PETRA_TRY_GOTO(status, petra_op_download(tensors->backend, tensor, host, type), done);
  PETRA_TRY_GOTO(status, host_values(tensors, name, wide, rank, shape, host), done);
  if (reading)
    status = petra_op_upload(tensors->backend, tensor, host, type);
done:
  petra_free(host);
  return status;
}

static int64_t account_index(const petra_tensor_archive *tensors, const petra_account *account) {
  for (int i = 0; i < tensors->account_count; i++)
    if (tensors->accounts[i] == account)
      return i;
  return -1;
}

/* That the values are in the file, as many as a tensor like `like` has, before room is made for them. */
static petra_status find_values(petra_tensor_archive *tensors, const char *item, petra_tensor *like) {
  if (like->kind != PETRA_TENSOR_MASK)
    return host_values(tensors, item, is_wide(tensors, like->kind), 4, like->shape, NULL);
  return petra_archive_require(tensors->archive, item, PETRA_ARCHIVE_U8,
                               (int64_t)petra_tensor_storage_bytes(tensors->backend, like));
}

/* Makes the tensor that `about` tells of. */
static petra_status make(petra_tensor_archive *tensors, const char *name, const int64_t *about, petra_tensor **out) {
  petra_tensor like = {.elements = 1, .kind = (petra_tensor_kind)about[0]};
  char item[96];
  bool sound = about[0] >= 0 && about[0] < PETRA_TENSOR_KINDS && about[5] >= -1 && about[5] < tensors->account_count &&
               about[6] >= 0 && about[6] < PETRA_MEMORY_CATEGORIES;
  for (int d = 0; d < 4 && sound; d++) {
    sound = about[1 + d] >= 1 && about[1 + d] <= ELEMENTS_MAX / like.elements;
    like.shape[d] = sound ? (int32_t)about[1 + d] : 1;
    like.elements *= like.shape[d];
  }
  if (!sound)
    return petra_archive_refuse(tensors->archive, name, "describes no tensor");
  snprintf(item, sizeof item, "%s.values", name);
  PETRA_TRY(find_values(tensors, item, &like));
  return petra_tensor_create(tensors->backend, like.kind, like.shape, about[5] < 0 ? NULL : tensors->accounts[about[5]],
                             (petra_memory_category)about[6], out);
}

/* A tensor that was not met before. */
static petra_status archive_tensor(petra_tensor_archive *tensors, const char *name, petra_tensor **tensor) {
  petra_archive *archive = tensors->archive;
  int64_t about[ABOUT];
  char item[96];
  petra_tensor *one = *tensor;
  if (!archive->reading) {
    about[0] = one->kind;
    for (int d = 0; d < 4; d++)
      about[1 + d] = one->shape[d];
    about[5] = account_index(tensors, one->account);
    about[6] = one->category;
  }
  snprintf(item, sizeof item, "%s.about", name);
  PETRA_TRY(petra_archive_integers(archive, item, about, ABOUT));
  if (archive->reading) {
    PETRA_TRY(make(tensors, name, about, &one));
    *tensor = one; /* the holder's from now on, whatever follows */
  }
  PETRA_TRY(petra_array_reserve(&tensors->known, &tensors->capacity, tensors->count + 1, sizeof(petra_tensor *)));
  tensors->known[tensors->count++] = one;
  snprintf(item, sizeof item, "%s.values", name);
  if (one->kind == PETRA_TENSOR_MASK)
    return petra_archive_values(archive, item, PETRA_ARCHIVE_U8, (int64_t)one->bytes, one->data);
  return petra_tensor_archive_content(tensors, item, one, 4, one->shape);
}

static int64_t find(const petra_tensor_archive *tensors, const petra_tensor *tensor) {
  for (int64_t i = tensors->count - 1; i >= 0; i--)
    if (tensors->known[i] == tensor)
      return i;
  return -1;
}

petra_status petra_tensor_archive_references(petra_tensor_archive *tensors, const char *name,
                                             petra_tensor **const *references, int count) {
  petra_archive *archive = tensors->archive;
  int64_t *index, known = tensors->count;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&index, (size_t)count, sizeof *index));
  for (int i = 0; i < count && !archive->reading; i++) { /* -1: none; those that are new come in order */
    index[i] = *references[i] ? find(tensors, *references[i]) : -1;
    for (int k = 0; k < i && *references[i] && index[i] < 0; k++)
      if (*references[k] == *references[i])
        index[i] = index[k];
    if (*references[i] && index[i] < 0)
      index[i] = known++;
  }
  PETRA_TRY_GOTO(status, petra_archive_integers(archive, name, index, count), done);
  for (int i = 0; i < count; i++) {
    char item[80];
    if (index[i] < -1 || index[i] > tensors->count) {
      status = petra_archive_refuse(archive, name, "refers to a tensor that is not there");
      goto done;
    }
    snprintf(item, sizeof item, "%s.%d", name, i);
    if (index[i] == tensors->count)
      PETRA_TRY_GOTO(status, archive_tensor(tensors, item, references[i]), done);
    else if (index[i] >= 0 && archive->reading)
      *references[i] = petra_tensor_retain(tensors->known[index[i]]);
  }
done:
  petra_free(index);
  return status;
}

petra_tensor_form petra_tensor_form_of(const petra_tensor *tensor) {
  petra_tensor_form form = {PETRA_PRESENT, tensor->kind, {0}};
  memcpy(form.shape, tensor->shape, sizeof form.shape);
  return form;
}

/* Whether the tensor is what the form says; the first that has images in it tells how many. */
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
