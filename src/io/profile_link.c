#include "io/profile_link.h"

#include "base/log.h"

#include <hdf5.h>

#include <math.h>
#include <string.h>

enum { STATISTICS = 6 };
static const double MOST_S = 1e6; /* as for the costs of a config */

bool petra_profile_link_put(int64_t file, const petra_profile *profile) {
  static const char *const dimensions[] = {"message", "statistic"};
  static const char *const statistics[STATISTICS] = {"minimum",        "first quartile", "median",
                                                     "third quartile", "maximum",        "mean"};
  const int32_t count = profile->messages;
  int64_t bytes[PETRA_PROFILE_MESSAGES];
  double time[PETRA_PROFILE_MESSAGES][STATISTICS], pack[PETRA_PROFILE_MESSAGES], unpack[PETRA_PROFILE_MESSAGES];
  for (int32_t i = 0; i < count; i++) {
    const petra_profile_message *m = &profile->message[i];
    const double row[STATISTICS] = {m->time.min,       m->time.quartile1, m->time.median,
                                    m->time.quartile3, m->time.max,       m->time.mean};
    bytes[i] = m->bytes;
    memcpy(time[i], row, sizeof row);
    pack[i] = m->pack_s;
    unpack[i] = m->unpack_s;
  }
  const petra_hdf5_set sets[] = {{.name = "link/bytes",
                                  .type = H5T_STD_I64LE,
                                  .rank = 1,
                                  .extent = {count},
                                  .values = bytes,
                                  .units = "byte",
                                  .dimensions = dimensions},
                                 {.name = "link/time",
                                  .type = H5T_IEEE_F64LE,
                                  .rank = 2,
                                  .extent = {count, STATISTICS},
                                  .values = time,
                                  .units = "s",
                                  .dimensions = dimensions,
                                  .legend = "columns",
                                  .texts = statistics,
                                  .text_count = STATISTICS},
                                 {.name = "link/pack",
                                  .type = H5T_IEEE_F64LE,
                                  .rank = 1,
                                  .extent = {count},
                                  .values = pack,
                                  .units = "s",
                                  .dimensions = dimensions},
                                 {.name = "link/unpack",
                                  .type = H5T_IEEE_F64LE,
                                  .rank = 1,
                                  .extent = {count},
                                  .values = unpack,
                                  .units = "s",
                                  .dimensions = dimensions}};
  bool done = petra_hdf5_put_i32(file, "ranks", profile->ranks) >= 0 && petra_hdf5_put_group(file, "link");
  for (size_t i = 0; i < sizeof sets / sizeof *sets && done; i++)
    done = petra_hdf5_put_set(file, &sets[i]);
  return done;
}

/* Reads a data set of `rank` dimensions, the first of `count`, the second of STATISTICS. */
static petra_status read_set(const petra_hdf5_file *file, const char *name, int class, int rank, int64_t count,
                             void *values) {
  int64_t extent[2] = {0, STATISTICS};
  hid_t set = H5Lexists(file->id, name, H5P_DEFAULT) > 0 ? H5Dopen2(file->id, name, H5P_DEFAULT) : -1;
  bool done = set >= 0 && petra_hdf5_extent(set, class, rank, extent) && extent[0] == count &&
              (rank == 1 || extent[1] == STATISTICS) &&
              H5Dread(set, class == H5T_INTEGER ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                      values) >= 0;
  if (set >= 0)
    H5Dclose(set);
  return done ? PETRA_OK
              : petra_fail(PETRA_DATA,
                           "%s: %s is missing, or of another shape or type than `petra profile` writes for %lld "
                           "message sizes",
                           file->path, name, (long long)count);
}

/* How many sizes there are. */
static petra_status read_count(const petra_hdf5_file *file, int64_t *count) {
  hid_t set = H5Lexists(file->id, "/link/bytes", H5P_DEFAULT) > 0 ? H5Dopen2(file->id, "/link/bytes", H5P_DEFAULT) : -1;
  bool done =
      set >= 0 && petra_hdf5_extent(set, H5T_INTEGER, 1, count) && *count >= 1 && *count <= PETRA_PROFILE_MESSAGES;
  if (set >= 0)
    H5Dclose(set);
  return done ? PETRA_OK
              : petra_fail(PETRA_DATA, "%s: /link/bytes: expected a list of 1 .. %d integers", file->path,
                           PETRA_PROFILE_MESSAGES);
}

static bool is_time(double seconds) {
  return seconds >= 0 && seconds <= MOST_S;
}

petra_status petra_profile_link_read(const petra_hdf5_file *file, petra_profile *profile) {
  int64_t count, bytes[PETRA_PROFILE_MESSAGES];
  double time[PETRA_PROFILE_MESSAGES][STATISTICS], pack[PETRA_PROFILE_MESSAGES], unpack[PETRA_PROFILE_MESSAGES];
  profile->ranks = 1;
  if (H5Lexists(file->id, "/link", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  PETRA_TRY(petra_hdf5_get_i32(file, "ranks", &profile->ranks));
  PETRA_TRY(read_count(file, &count));
  PETRA_TRY(read_set(file, "/link/bytes", H5T_INTEGER, 1, count, bytes));
  PETRA_TRY(read_set(file, "/link/time", H5T_FLOAT, 2, count, time));
  PETRA_TRY(read_set(file, "/link/pack", H5T_FLOAT, 1, count, pack));
  PETRA_TRY(read_set(file, "/link/unpack", H5T_FLOAT, 1, count, unpack));
  for (int64_t i = 0; i < count; i++) {
    bool right = bytes[i] > (i > 0 ? bytes[i - 1] : 0) && is_time(pack[i]) && is_time(unpack[i]);
    for (int s = 0; s < STATISTICS; s++)
      right = right && is_time(time[i][s]);
    if (!right)
      return petra_fail(PETRA_DATA, "%s: /link: message size %lld: expected rising sizes, and times of 0 .. %g s",
                        file->path, (long long)i + 1, MOST_S);
    profile->message[i] = (petra_profile_message){
        bytes[i], {time[i][0], time[i][1], time[i][2], time[i][3], time[i][4], time[i][5]}, pack[i], unpack[i]};
  }
  profile->messages = (int32_t)count;
  return PETRA_OK;
}
