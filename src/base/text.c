/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* fopencookie: the stream of open_memstream says nothing where memory ends */
#include "base/text.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

struct text {
  char *bytes;
  int64_t size, capacity;
};

static ssize_t append(void *cookie, const char *from, size_t count) {
  struct text *text = cookie;
  if (petra_array_reserve(&text->bytes, &text->capacity, text->size + (int64_t)count + 1, 1) != PETRA_OK)
    return 0; /* an error of the stream */
  memcpy(text->bytes + text->size, from, count);
  text->size += (int64_t)count;
  return (ssize_t)count;
}

petra_status petra_text_print(petra_text_printer print, const void *context, const char *what, char **text,
                              size_t *size) {
  struct text printed = {0};
  FILE *stream = fopencookie(&printed, "w", (cookie_io_functions_t){.write = append});
  if (!stream)
    return petra_fail(PETRA_NO_MEMORY, "out of memory for %s", what);
  petra_status status = print(context, stream);
  bool whole = !ferror(stream);
  if (fclose(stream) != 0 || !whole) /* whatever print made of it: this stream fails for nothing else */
    status = petra_fail(PETRA_NO_MEMORY, "out of memory for %s", what);
  if (status == PETRA_OK && !printed.bytes) /* nothing was printed */
    status = petra_duplicate_string(&printed.bytes, "");
  if (status != PETRA_OK) {
    petra_free(printed.bytes);
    return status;
  }
  *text = printed.bytes;
  *size = (size_t)printed.size;
  return PETRA_OK;
}
