#include "base/config_read.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20 }; /* no config comes near; an endless pipe does not fill the memory */

static petra_status fail_read(const petra_config_origin *origin, int error) {
  return petra_fail(PETRA_IO, "%s: cannot be read: %s; expected a config file in YAML", origin->file, strerror(error));
}

petra_status petra_config_check_length(const petra_config_origin *origin, size_t length) {
  if (length <= MAX_BYTES)
    return PETRA_OK;
  return petra_fail(PETRA_CONFIG, "%s: longer than %d bytes; expected a config file in YAML", origin->file, MAX_BYTES);
}

static petra_status read_stream(FILE *stream, const petra_config_origin *origin, char **text, size_t *length) {
  char *buffer = NULL;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate_raw(&buffer, MAX_BYTES + 2, 1));
  errno = 0;
  size_t bytes = fread(buffer, 1, MAX_BYTES + 1, stream);
  if (ferror(stream))
    status = fail_read(origin, errno);
  else
    status = petra_config_check_length(origin, bytes);
  if (status != PETRA_OK) {
    petra_free(buffer);
    return status;
  }
  buffer[bytes] = 0;
  *text = buffer;
  *length = bytes;
  return PETRA_OK;
}

petra_status petra_config_read(const char *path, const petra_config_origin *origin, char **text, size_t *length) {
  if (strcmp(path, "-") == 0)
    return read_stream(stdin, origin, text, length);
  FILE *stream = fopen(path, "rb");
  if (!stream)
    return fail_read(origin, errno);
  petra_status status = read_stream(stream, origin, text, length);
  fclose(stream);
  return status;
}
