/* SPDX-License-Identifier: Apache-2.0 */
#include "record/backend_memory.h"

#include "base/mem.h"

petra_status petra_backend_memory_write(petra_backend *backend, petra_ranks *ranks, petra_runlog *runlog) {
  const petra_backend_memory held = petra_backend_memory_in_use(backend);
  const petra_runlog_backend here = {held.tensors, held.filters, held.scratch};
  petra_runlog_backend *rows;
  PETRA_TRY(petra_allocate(&rows, (size_t)ranks->count, sizeof *rows));
  petra_status status = petra_ranks_gather_rows(ranks, &here, sizeof here, rows);
  if (status == PETRA_OK && runlog)
    status = petra_runlog_backends(runlog, rows, ranks->count);
  petra_free(rows);
  return status;
}
