/* SPDX-License-Identifier: Apache-2.0 */
/* Reading HDF5 files that others may have made or may be writing. Every data set whose values petra reads is opened here.
 * HDF5's identifiers (hid_t) are int64_t, so that its headers stay in .c files. */
#ifndef PETRA_BASE_HDF5_H
#define PETRA_BASE_HDF5_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether it is an HDF5 file, which may begin with a user block of 512, 1024, 2048, ... bytes. */
bool petra_hdf5_is_file(const char *path);

/* Opens the file for reading without a lock, so that a file that is being written can be read; closing it closes all that
 * is open in it. PETRA_IO: another process has locked the file; PETRA_DATA: not an HDF5 file, one that its writer has left
 * open, or a damaged one. The line says which. */
petra_status petra_hdf5_open_file(const char *path, int64_t *out);

/* Opens the data set `name` of `folder`, a file or a group. *out is negative if there is none. PETRA_DATA, with a line that
 * names the data set: its values are in another file or data set (external link, external storage, virtual data set), it
 * has no values (null dataspace), or, if `whole`, some of its values were never written, so that HDF5 would read its fill
 * value in their place. `path` is that of the file. Links within the file are followed. */
petra_status petra_hdf5_open_set(const char *path, int64_t folder, const char *name, bool whole, int64_t *out);

/* PETRA_DATA if a link anywhere in the open file leads out of it. */
petra_status petra_hdf5_check_links(const char *path, int64_t file);

#endif
