/* SPDX-License-Identifier: Apache-2.0 */
/* /link of profile.h5: what messages take between two ranks. Private to src/io. */
#ifndef PETRA_IO_PROFILE_LINK_FILE_H
#define PETRA_IO_PROFILE_LINK_FILE_H

#include "io/hdf5_file.h"
#include "io/profile_file.h" /* circle: what it writes and reads is a part of the profile */

/* Writes the group; false where HDF5 fails. */
bool petra_profile_link_put(int64_t file, const petra_profile *profile);

/* Reads it; without it the profile has no messages and one rank. PETRA_DATA: one line with what is wrong. */
petra_status petra_profile_link_read(const petra_hdf5_file *file, petra_profile *profile);

#endif
