/* A row of /epoch as a JSON object, for `petra train --json` and `petra inspect --json`. */
#ifndef PETRA_CLI_EPOCH_JSON_H
#define PETRA_CLI_EPOCH_JSON_H

#include "io/runlog.h"

struct json_t; /* jansson's */

petra_status petra_epoch_json(const petra_runlog_epoch *row, struct json_t *object);

#endif
