/* SPDX-License-Identifier: Apache-2.0 */
#include "record/run_h5_simulate.h"

#include "record/run_h5_private.h"

#include <hdf5.h>

#include <math.h>

static bool write_simulation(petra_runlog *log, const void *what) {
  const petra_runlog_simulation *s = what;
  const bool critical = s->critical_kinds > 0;
  const double makespan_s = 1e-9 * (double)s->makespan_ns;
  const struct {
    const char *name, *units;
    bool real;
    const void *values;
    const char *dimension; /* NULL: one number */
    int64_t count;
  } sets[] = {
      {"simulate/makespan_s", "s", true, &makespan_s, NULL, 1},
      {"simulate/makespan_ns", "ns", false, &s->makespan_ns, NULL, 1},
      {"simulate/time_per_microbatch_s", "s", true, &s->time_per_microbatch_s, NULL, 1},
      {"simulate/time_per_microbatch_low_s", "s", true, isnan(s->low_s) ? NULL : &s->low_s, NULL, 1},
      {"simulate/time_per_microbatch_high_s", "s", true, isnan(s->high_s) ? NULL : &s->high_s, NULL, 1},
      {"simulate/bubble_fraction", "1", true, &s->bubble_fraction, NULL, 1},
      {"simulate/actions", "count", false, &s->actions, NULL, 1},
      {"simulate/microbatches", "count", false, &s->microbatches, NULL, 1},
      {"simulate/wall_s", "s", true, &s->wall_s, NULL, 1},
      {"simulate/utilization", "1", true, s->utilization, "stage", s->stages},
      {"simulate/lag_mean", "updates", true, s->lag_mean, "stage", s->stages},
      {"simulate/lag_max", "updates", false, s->lag_max, "stage", s->stages},
      {"simulate/in_flight_max", "microbatches", false, s->in_flight_max, "stage", s->stages},
      {"simulate/kept_max", "microbatches", false, s->kept_max, "stage", s->stages},
      {"simulate/bytes_up", "byte", false, s->bytes_up, "stage", s->stages},
      {"simulate/bytes_down", "byte", false, s->bytes_down, "stage", s->stages},
      {"simulate/bytes_exchanged", "byte", false, s->bytes_exchanged, "stage", s->stages},
      {"simulate/rank_busy", "1", true, s->ranks > 0 ? s->rank_busy : NULL, "rank", s->ranks},
      {"simulate/critical_stage_ns", "ns", false, critical ? s->critical_stage_ns : NULL, "stage", s->stages},
      {"simulate/critical_ns", "ns", false, critical ? s->critical_ns : NULL, "kind", s->critical_kinds},
  };
  bool done = true;
  for (size_t i = 0; i < sizeof sets / sizeof *sets && done; i++) {
    petra_hdf5_set set = {.name = sets[i].name,
                          .type = sets[i].real ? H5T_IEEE_F64LE : H5T_STD_I64LE,
                          .rank = sets[i].dimension ? 1 : 0,
                          .extent = {sets[i].count},
                          .values = sets[i].values,
                          .units = sets[i].units,
                          .dimensions = sets[i].dimension ? &sets[i].dimension : NULL};
    if (sets[i].values == s->critical_ns) {
      set.legend = "kinds";
      set.texts = s->critical_names;
      set.text_count = s->critical_kinds;
    }
    done = !set.values || petra_hdf5_put_set(log->file, &set);
  }
  static const char *const dimension = "stage";
  const petra_hdf5_set of_stage = {.name = "simulate/of_stage",
                                   .type = H5T_STD_I32LE,
                                   .rank = 1,
                                   .extent = {s->stages},
                                   .values = s->of_stage,
                                   .units = "1",
                                   .dimensions = &dimension};
  return done && (s->ranks == 0 || petra_hdf5_put_set(log->file, &of_stage));
}

petra_status petra_runlog_simulated(petra_runlog *log, const petra_runlog_simulation *simulation) {
  return petra_runlog_extend(log, write_simulation, simulation, 7 * 8 * (int64_t)simulation->stages);
}

static bool write_memory_time(petra_runlog *log, const void *what) {
  static const char *const dimensions[] = {"bin", "stage", "category"};
  const petra_runlog_memory_time *memory = what;
  const petra_hdf5_set width = {
      .name = "memory/bin_ns", .type = H5T_STD_I64LE, .values = &memory->width_ns, .units = "ns"};
  const petra_hdf5_set levels = {.name = "memory/bytes",
                                 .type = H5T_STD_I64LE,
                                 .rank = 3,
                                 .extent = {memory->bins, memory->stages, PETRA_MEMORY_CATEGORIES + 1},
                                 .values = memory->values,
                                 .units = "byte",
                                 .dimensions = dimensions,
                                 .legend = "categories",
                                 .texts = petra_runlog_categories,
                                 .text_count = PETRA_MEMORY_CATEGORIES + 1};
  hid_t id = petra_hdf5_put_set(log->file, &width) ? petra_hdf5_write_set(log->file, &levels) : -1;
  bool done = id >= 0 && petra_hdf5_put_text(id, "accounting", memory->accounting) >= 0;
  return H5Dclose(id) >= 0 && done;
}

petra_status petra_runlog_memory_over_time(petra_runlog *log, const petra_runlog_memory_time *memory) {
  int64_t values = (int64_t)memory->bins * memory->stages * (PETRA_MEMORY_CATEGORIES + 1);
  return petra_runlog_extend(log, write_memory_time, memory, 8 * values);
}
