/* SPDX-License-Identifier: Apache-2.0 */
/* plans.txt: with device.plans the configurations of cuDNN that a run's convolutions took, as such a file; of several processes those
 * of rank 0. Where device.plans names this file itself, it is left to the backend. */
#pragma once

#include "backend/backend.h"
#include "config/config.h"

#define PETRA_PLANS_FILE "plans.txt"

/* Writes it into the folder; nothing where the backend has none. PETRA_IO, PETRA_NO_MEMORY. */
petra_status petra_plans_file_write(const petra_config *config, const petra_backend *backend, const char *folder);

/* Whether it is the file that device.plans names. */
bool petra_plans_file_is_read(const petra_config *config, const char *folder);
