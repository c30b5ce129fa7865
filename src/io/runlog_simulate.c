#include "io/runlog_simulate.h"

#include "io/hdf5_file.h"
#include "io/runlog_private.h"

#include <hdf5.h>

/* A data set as a whole; rank 0: a number. */
typedef struct whole {
  const char *name, *units;
  int rank;
  hsize_t extent[3];
  const char *dimensions[3];
  bool real;
  const void *values;
} whole;

static hid_t write_whole(hid_t file, const whole *set) {
  hid_t in_file = set->real ? H5T_IEEE_F64LE : H5T_STD_I64LE,
        in_memory = set->real ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64;
  hid_t space = set->rank ? H5Screate_simple(set->rank, set->extent, NULL) : H5Screate(H5S_SCALAR);
  hid_t id = petra_hdf5_create_set(file, set->name, in_file, space, petra_hdf5_untimed(H5P_DATASET_CREATE), set->units,
                                   set->dimensions, set->rank);
  if (id >= 0 && H5Dwrite(id, in_memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, set->values) < 0) {
    H5Dclose(id);
    return -1;
  }
  return id;
}

static bool write_and_close(hid_t file, const whole *set) {
  hid_t id = write_whole(file, set);
  return id >= 0 && H5Dclose(id) >= 0;
}

/* --- /simulate --- */

static bool write_run(hid_t file, const petra_runlog_simulation *s) {
  double makespan_s = 1e-9 * (double)s->makespan_ns;
  const whole sets[] = {
      {.name = "simulate/makespan_s", .units = "s", .real = true, .values = &makespan_s},
      {.name = "simulate/makespan_ns", .units = "ns", .values = &s->makespan_ns},
      {.name = "simulate/time_per_microbatch_s", .units = "s", .real = true, .values = &s->time_per_microbatch_s},
      {.name = "simulate/bubble_fraction", .units = "1", .real = true, .values = &s->bubble_fraction},
      {.name = "simulate/actions", .units = "count", .values = &s->actions},
      {.name = "simulate/microbatches", .units = "count", .values = &s->microbatches},
      {.name = "simulate/wall_s", .units = "s", .real = true, .values = &s->wall_s},
  };
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
    if (!write_and_close(file, &sets[i]))
      return false;
  return true;
}

static bool write_stages(hid_t file, const petra_runlog_simulation *s) {
  const struct {
    const char *name, *units;
    bool real;
    const void *values;
  } columns[] = {
      {"simulate/utilization", "1", true, s->utilization},
      {"simulate/lag_mean", "updates", true, s->lag_mean},
      {"simulate/lag_max", "updates", false, s->lag_max},
      {"simulate/in_flight_max", "microbatches", false, s->in_flight_max},
      {"simulate/kept_max", "microbatches", false, s->kept_max},
      {"simulate/bytes_up", "byte", false, s->bytes_up},
      {"simulate/bytes_down", "byte", false, s->bytes_down},
      {"simulate/critical_stage_ns", "ns", false, s->critical_kinds ? s->critical_stage_ns : NULL},
  };
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    const whole set = {.name = columns[i].name,
                       .units = columns[i].units,
                       .rank = 1,
                       .extent = {(hsize_t)s->stages},
                       .dimensions = {"stage"},
                       .real = columns[i].real,
                       .values = columns[i].values};
    if (columns[i].values && !write_and_close(file, &set))
      return false;
  }
  return true;
}

static bool write_critical(hid_t file, const petra_runlog_simulation *s) {
  const whole set = {.name = "simulate/critical_ns",
                     .units = "ns",
                     .rank = 1,
                     .extent = {(hsize_t)s->critical_kinds},
                     .dimensions = {"kind"},
                     .values = s->critical_ns};
  hid_t id = write_whole(file, &set);
  if (id < 0)
    return false;
  bool done = petra_hdf5_put_texts(id, "kinds", s->critical_names, s->critical_kinds) >= 0;
  return H5Dclose(id) >= 0 && done;
}

static bool write_simulation(int64_t file, const void *what) {
  const petra_runlog_simulation *s = what;
  return write_run(file, s) && write_stages(file, s) && (s->critical_kinds == 0 || write_critical(file, s));
}

petra_status petra_runlog_simulated(petra_runlog *log, const petra_runlog_simulation *simulation) {
  return petra_runlog_extend(log, write_simulation, simulation, 7 * 8 * (int64_t)simulation->stages);
}

/* --- /memory --- */

static bool write_memory_time(int64_t file, const void *what) {
  const petra_runlog_memory_time *memory = what;
  const char *columns[PETRA_MEMORY_CATEGORIES + 1];
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    columns[c] = petra_memory_category_name((petra_memory_category)c);
  columns[PETRA_MEMORY_CATEGORIES] = "total";
  const whole width = {.name = "memory/bin_ns", .units = "ns", .values = &memory->width_ns};
  const whole levels = {.name = "memory/bytes",
                        .units = "byte",
                        .rank = 3,
                        .extent = {(hsize_t)memory->bins, (hsize_t)memory->stages, PETRA_MEMORY_CATEGORIES + 1},
                        .dimensions = {"bin", "stage", "category"},
                        .values = memory->values};
  hid_t id = write_and_close(file, &width) ? write_whole(file, &levels) : -1;
  if (id < 0)
    return false;
  bool done = petra_hdf5_put_texts(id, "categories", columns, PETRA_MEMORY_CATEGORIES + 1) >= 0 &&
              petra_hdf5_put_text(id, "accounting", memory->accounting) >= 0;
  return H5Dclose(id) >= 0 && done;
}

petra_status petra_runlog_memory_over_time(petra_runlog *log, const petra_runlog_memory_time *memory) {
  int64_t values = (int64_t)memory->bins * memory->stages * (PETRA_MEMORY_CATEGORIES + 1);
  return petra_runlog_extend(log, write_memory_time, memory, 8 * values);
}
