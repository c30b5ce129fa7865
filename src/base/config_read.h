/* The bytes of a config before anybody looks for YAML in them. Private to the config. */
#ifndef PETRA_BASE_CONFIG_READ_H
#define PETRA_BASE_CONFIG_READ_H

#include "base/config_value.h"

/* Reads a whole file, pipe or ("-") standard input of at most 1 MiB. *text is terminated; free it with
 * petra_free. PETRA_IO if it cannot be read, PETRA_CONFIG if it is too long. */
petra_status petra_config_read(const char *path, const petra_config_origin *origin, char **text, size_t *length);

/* PETRA_CONFIG if a text of so many bytes is too long. */
petra_status petra_config_check_length(const petra_config_origin *origin, size_t length);

#endif
