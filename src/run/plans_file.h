/* SPDX-License-Identifier: Apache-2.0 */
/* plans.txt: with device.plans, the configurations of cuDNN that the convolutions of a run used, in the format of such
 * a file; with several processes those of rank 0. If device.plans names this file itself, the backend writes it. */
#pragma once

#include "backend/backend.h"
#include "config/config.h"

#define PETRA_PLANS_FILE "plans.txt"

/* Writes the file into the folder; nothing if the backend has no plans. PETRA_IO, PETRA_NO_MEMORY. */
petra_status petra_plans_file_write(const petra_config *config, const petra_backend *backend, const char *folder);

/* Returns true if device.plans names this file. */
bool petra_plans_file_is_read(const petra_config *config, const char *folder);
