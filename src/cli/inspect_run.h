/* petra inspect of a run. */
#ifndef PETRA_CLI_INSPECT_RUN_H
#define PETRA_CLI_INSPECT_RUN_H

#include "cli/command.h"

/* Whether `path` is a folder or begins with HDF5's signature. */
bool petra_inspect_is_run(const char *path);

petra_status petra_inspect_run(const petra_arguments *arguments);

#endif
