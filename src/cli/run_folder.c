#include "cli/run_folder.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

petra_status petra_run_folder_lock(const char *directory, int *out) {
  int lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0)
    return petra_fail(PETRA_IO, "%s: cannot open this folder: %s", directory, strerror(errno));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(lock);
    return petra_fail(
        PETRA_IO, "%s: another run is writing into this folder; expected a folder of its own (--output or run.name)",
        directory);
  }
  *out = lock;
  return PETRA_OK;
}

petra_status petra_run_folder_expand_config(const petra_config *config, char **out, size_t *size) {
  FILE *stream = open_memstream(out, size);
  if (!stream)
    return petra_fail(PETRA_NO_MEMORY, "out of memory for the text of the config");
  petra_status status = petra_config_print(config, stream);
  fclose(stream);
  return status;
}

petra_status petra_run_folder_write_config(const char *directory, const char *text, size_t size) {
  char *path;
  PETRA_TRY(petra_join_path(directory, "config.yaml", &path));
  petra_status status = petra_file_write_atomically(path, text, size);
  petra_free(path);
  return status;
}

petra_status petra_run_folder_write_stages(const petra_setup *setup, petra_runlog *runlog) {
  const int stages = setup->partition.stages;
  petra_runlog_stage *rows = NULL;
  petra_stage_summary *summaries = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&rows, (size_t)stages, sizeof *rows), done);
  PETRA_TRY_GOTO(status, petra_allocate(&summaries, (size_t)stages, sizeof *summaries), done);
  for (int j = 0; j < stages; j++) {
    petra_setup_stage_summary(setup, j, &summaries[j]);
    const petra_stage_summary summary = summaries[j];
    rows[j] = (petra_runlog_stage){.stage = j + 1,
                                   .name = summaries[j].name,
                                   .reversible = summary.reversible,
                                   .parameters = summary.parameters,
                                   .forward_flops = summary.forward_flops,
                                   .forward_bytes = summary.forward_bytes,
                                   .backward_bytes = summary.backward_bytes,
                                   .delay = (int32_t)summary.delay};
  }
  status = petra_runlog_stages(runlog, rows, stages);
done:
  petra_free(rows);
  petra_free(summaries);
  return status;
}
