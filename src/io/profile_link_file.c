/* SPDX-License-Identifier: Apache-2.0 */
#include "io/profile_link_file.h"

#include "base/log.h"

#include <hdf5.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { STATISTICS = 6 };
static const double MAX_S = 1e6; /* as for the costs of a config */

/* Times of messages: members of petra_profile_message, each a petra_spread (of STATISTICS columns) or a number. */
static const struct {
  const char *name;
  size_t offset;
  int columns;
} columns[] = {{"link/time", offsetof(petra_profile_message, time), STATISTICS},
               {"link/alone", offsetof(petra_profile_message, alone), STATISTICS},
               {"link/pack", offsetof(petra_profile_message, pack_s), 1},
               {"link/unpack", offsetof(petra_profile_message, unpack_s), 1},
               {"link/carry", offsetof(petra_profile_message, carry_s), 1}};
enum { COLUMNS = sizeof columns / sizeof *columns, ALONE = 1, CARRY = 4 };
_Static_assert(sizeof(petra_spread) == STATISTICS * sizeof(double), "a spread is its columns");

static double *values_of(petra_profile_message *message, int column) {
  return (double *)((char *)message + columns[column].offset);
}

static petra_hdf5_set describe(const char *name, int64_t type, int rank, int32_t count, const void *values) {
  static const char *const dimensions[] = {"message", "statistic"};
  static const char *const statistics[STATISTICS] = {"minimum",        "first quartile", "median",
                                                     "third quartile", "maximum",        "mean"};
  return (petra_hdf5_set){.name = name,
                          .type = type,
                          .rank = rank,
                          .extent = {count, STATISTICS},
                          .values = values,
                          .units = type == H5T_STD_I64LE ? "byte" : "s",
                          .dimensions = dimensions,
                          .legend = rank == 2 ? "columns" : NULL,
                          .texts = statistics,
                          .text_count = rank == 2 ? STATISTICS : 0};
}

bool petra_profile_link_put(int64_t file, const petra_profile *profile) {
  const int32_t count = profile->messages;
  int64_t bytes[PETRA_PROFILE_MESSAGES];
  double values[PETRA_PROFILE_MESSAGES * STATISTICS];
  for (int32_t i = 0; i < count; i++)
    bytes[i] = profile->message[i].bytes;
  petra_hdf5_set set = describe("link/bytes", H5T_STD_I64LE, 1, count, bytes);
  bool done = petra_hdf5_put_i32(file, "ranks", profile->ranks) >= 0 &&
              petra_hdf5_put_i32(file, "hosts", profile->hosts) >= 0 && petra_hdf5_put_group(file, "link") &&
              petra_hdf5_put_set(file, &set);
  for (int c = 0; c < COLUMNS && done; c++) {
    if (c == ALONE && !profile->has_alone)
      continue;
    for (int32_t i = 0; i < count; i++) {
      petra_profile_message message = profile->message[i];
      memcpy(values + columns[c].columns * i, values_of(&message, c), (size_t)columns[c].columns * sizeof *values);
    }
    set = describe(columns[c].name, H5T_IEEE_F64LE, columns[c].columns > 1 ? 2 : 1, count, values);
    done = petra_hdf5_put_set(file, &set);
  }
  return done;
}

/* Reads a data set of `count` rows, of one number or of STATISTICS. */
static petra_status read_set(const petra_hdf5_file *file, const char *name, int class, int rank, int64_t count,
                             void *values) {
  int64_t extent[2] = {0, STATISTICS};
  hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(file->path, file->id, name, true, &set));
  bool done = set >= 0 && petra_hdf5_extent(set, class, rank, extent) && extent[0] == count &&
              (rank == 1 || extent[1] == STATISTICS) &&
              H5Dread(set, class == H5T_INTEGER ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                      values) >= 0;
  if (set >= 0)
    H5Dclose(set);
  return done ? PETRA_OK
              : petra_fail(PETRA_DATA,
                           "%s: /%s is missing, or of another shape or type than `petra profile` writes for %lld "
                           "message sizes",
                           file->path, name, (long long)count);
}

/* How many sizes there are. */
static petra_status read_count(const petra_hdf5_file *file, int64_t *count) {
  hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(file->path, file->id, "/link/bytes", true, &set));
  bool done =
      set >= 0 && petra_hdf5_extent(set, H5T_INTEGER, 1, count) && *count >= 1 && *count <= PETRA_PROFILE_MESSAGES;
  if (set >= 0)
    H5Dclose(set);
  return done ? PETRA_OK
              : petra_fail(PETRA_DATA, "%s: /link/bytes: expected a list of 1 .. %d integers", file->path,
                           PETRA_PROFILE_MESSAGES);
}

static petra_status refuse(const petra_hdf5_file *file, int64_t i) {
  return petra_fail(PETRA_DATA, "%s: /link: message size %lld: expected rising sizes, and times of 0 .. %g s",
                    file->path, (long long)i + 1, MAX_S);
}

static petra_status read_column(const petra_hdf5_file *file, int column, int64_t count, petra_profile *profile) {
  const int wide = columns[column].columns;
  double values[PETRA_PROFILE_MESSAGES * STATISTICS];
  PETRA_TRY(read_set(file, columns[column].name, H5T_FLOAT, wide > 1 ? 2 : 1, count, values));
  for (int64_t i = 0; i < wide * count; i++)
    if (!(values[i] >= 0 && values[i] <= MAX_S))
      return refuse(file, i / wide);
  for (int64_t i = 0; i < count; i++)
    memcpy(values_of(&profile->message[i], column), values + wide * i, (size_t)wide * sizeof *values);
  return PETRA_OK;
}

petra_status petra_profile_link_read(const petra_hdf5_file *file, petra_profile *profile) {
  int64_t count, bytes[PETRA_PROFILE_MESSAGES];
  profile->ranks = profile->hosts = 1;
  if (H5Lexists(file->id, "/link", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  PETRA_TRY(petra_hdf5_get_i32(file, "ranks", &profile->ranks));
  profile->hosts = 0;
  if (H5Aexists(file->id, "hosts") > 0)
    PETRA_TRY(petra_hdf5_get_i32(file, "hosts", &profile->hosts));
  PETRA_TRY(read_count(file, &count));
  PETRA_TRY(read_set(file, "link/bytes", H5T_INTEGER, 1, count, bytes));
  for (int64_t i = 0; i < count; i++) {
    if (bytes[i] <= (i > 0 ? bytes[i - 1] : 0))
      return refuse(file, i);
    profile->message[i].bytes = bytes[i];
  }
  profile->has_alone = H5Lexists(file->id, "link/alone", H5P_DEFAULT) > 0;
  const bool has_carry = H5Lexists(file->id, "link/carry", H5P_DEFAULT) > 0;
  for (int c = 0; c < COLUMNS; c++)
    if ((c != ALONE || profile->has_alone) && (c != CARRY || has_carry))
      PETRA_TRY(read_column(file, c, count, profile));
  profile->messages = (int32_t)count;
  return PETRA_OK;
}
