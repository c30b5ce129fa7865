/* SPDX-License-Identifier: Apache-2.0 */
#include "io/weights.h"

#include "base/log.h"
#include "base/mem.h"
#include "config.h"
#include "io/hdf5_file.h"
