#include "base/text.h"

#include "base/log.h"

#include <stdbool.h>
#include <stdlib.h>

petra_status petra_text_print(petra_text_printer print, const void *context, const char *what, char **text,
                              size_t *size) {
  char *printed = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&printed, &bytes);
  if (!stream)
    return petra_fail(PETRA_NO_MEMORY, "out of memory for %s", what);
  petra_status status = print(context, stream);
  bool whole = !ferror(stream);
  if ((fclose(stream) != 0 || !whole) && status == PETRA_OK)
    status = petra_fail(PETRA_NO_MEMORY, "out of memory for %s", what);
  if (status != PETRA_OK) {
    free(printed);
    return status;
  }
  *text = printed;
  *size = bytes;
  return PETRA_OK;
}
