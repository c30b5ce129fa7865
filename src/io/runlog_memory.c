/* /memory/peak_bytes and /memory/total_peak_bytes of run.h5. */
#include "base/log.h"
#include "base/mem.h"
#include "io/runlog_private.h"

#include <hdf5.h>

#include <stdbool.h>
#include <string.h>

static bool create_memory(petra_runlog *log, int32_t stages) {
  static const char *const dimensions[] = {"stage", "category"};
  const char *categories[PETRA_MEMORY_CATEGORIES];
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    categories[c] = petra_memory_category_name((petra_memory_category)c);
  hsize_t extent[2] = {(hsize_t)stages, PETRA_MEMORY_CATEGORIES};
  log->peak = petra_hdf5_create_set(log->file, "memory/peak_bytes", H5T_STD_I64LE, H5Screate_simple(2, extent, NULL),
                                    petra_hdf5_untimed(H5P_DATASET_CREATE), "byte", dimensions, 2);
  log->total_peak =
      petra_hdf5_create_set(log->file, "memory/total_peak_bytes", H5T_STD_I64LE, H5Screate_simple(1, extent, NULL),
                            petra_hdf5_untimed(H5P_DATASET_CREATE), "byte", dimensions, 1);
  log->memory_stages = stages;
  return log->peak >= 0 && log->total_peak >= 0 &&
         petra_hdf5_put_texts(log->peak, "categories", categories, PETRA_MEMORY_CATEGORIES) >= 0;
}

static bool write_memory(petra_runlog *log, const int64_t *peak, const int64_t *total, int32_t stages) {
  if (log->peak < 0 && !create_memory(log, stages))
    return false;
  return H5Dwrite(log->peak, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, peak) >= 0 &&
         H5Dwrite(log->total_peak, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, total) >= 0;
}

petra_status petra_runlog_memory(petra_runlog *log, const petra_account *accounts, int32_t stages) {
  PETRA_TRY(petra_runlog_ready(log));
  if (log->peak >= 0 && stages != log->memory_stages)
    return petra_fail(PETRA_INTERNAL, "%s: memory of %d stages, expected %d", log->path, (int)stages,
                      (int)log->memory_stages);
  int64_t *peak = NULL; /* (J, category), then the totals (J) */
  PETRA_TRY(petra_allocate_raw(&peak, (size_t)stages * (PETRA_MEMORY_CATEGORIES + 1), sizeof *peak));
  int64_t *total = peak + (size_t)stages * PETRA_MEMORY_CATEGORIES;
  for (int32_t stage = 0; stage < stages; stage++) {
    memcpy(peak + (size_t)stage * PETRA_MEMORY_CATEGORIES, accounts[stage].peak_bytes,
           sizeof accounts[stage].peak_bytes);
    total[stage] = accounts[stage].total_peak_bytes;
  }
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  petra_status status = PETRA_OK;
  if (!write_memory(log, peak, total, stages))
    status = petra_runlog_give_up(log, petra_hdf5_reason(&errors));
  else
    status = petra_runlog_write_out(log, &errors);
  petra_hdf5_end();
  petra_free(peak);
  return status;
}
