/* SPDX-License-Identifier: Apache-2.0 */
#include "run/folder.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static const int64_t MARK_PATIENCE_NS = 5000000000; /* an NFS client may show an old state for 3 s */

petra_status petra_folder_of_run(const petra_config *config, const char *output, char **out) {
  return output ? petra_duplicate_string(out, output) : petra_join_path(config->run.output, config->run.name, out);
}

petra_status petra_folder_of(const petra_config *config, const char *output, char **out) {
  PETRA_FREED char *path = NULL;
  PETRA_TRY(petra_folder_of_run(config, output, &path));
  PETRA_TRY(petra_make_folder(path));
  *out = petra_take(&path);
  return PETRA_OK;
}

/* Returns false if another process has the lock; file systems without locks refuse nothing. */
static bool try_lock(int folder) {
  return flock(folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

static petra_status lock(petra_folder *folder) {
  folder->open = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder->open < 0)
    return petra_fail(PETRA_IO, "%s: cannot open this folder: %s", folder->path, strerror(errno));
  if (try_lock(folder->open))
    return PETRA_OK;
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* a reader may hold the lock for a moment */
  if (try_lock(folder->open))
    return PETRA_OK;
  return petra_fail(PETRA_IO,
                    "%s: another run is writing to this folder; expected a folder of its own (--output or run.name)",
                    folder->path);
}

static petra_status print_config(const void *config, FILE *out) {
  return petra_config_print(config, out);
}

petra_status petra_folder_expand_config(const petra_config *config, char **out, size_t *size) {
  return petra_text_print(print_config, config, "the text of the config", out, size);
}

static petra_status write_config(const petra_folder *folder) {
  PETRA_FREED char *path = NULL;
  PETRA_TRY(petra_join_path(folder->path, "config.yaml", &path));
  return petra_file_write_atomically(path, folder->config, folder->config_size);
}

/* --- one folder for processes on several hosts --- */

/* The name of an empty file; "": no file was created. */
typedef struct shared_mark {
  char name[48];
} shared_mark;

static void mark_path(const char *folder, const shared_mark *mark, char path[PATH_MAX]) {
  snprintf(path, PATH_MAX, "%s/%s", folder, mark->name);
}

static petra_status set_mark(const char *folder, shared_mark *mark) {
  uint64_t number[2];
  char path[PATH_MAX];
  if (getrandom(number, sizeof number, 0) != sizeof number)
    return petra_fail(PETRA_IO, "no random number: %s", strerror(errno));
  snprintf(mark->name, sizeof mark->name, ".shared-%016" PRIx64 "%016" PRIx64, number[0], number[1]);
  mark_path(folder, mark, path);
  const int made = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (made < 0)
    return petra_fail(PETRA_IO, "%s: cannot write to this folder: %s", folder, strerror(errno));
  close(made);
  return PETRA_OK;
}

/* Looks for the file for a few seconds, because a network file system may show it late. */
static bool find_mark(const char *folder, const shared_mark *mark) {
  const struct timespec pause = {0, 100000000};
  const int64_t began_ns = petra_clock_ns();
  char path[PATH_MAX];
  bool found;
  mark_path(folder, mark, path);
  while (!(found = access(path, F_OK) == 0) && petra_clock_ns() - began_ns < MARK_PATIENCE_NS)
    nanosleep(&pause, NULL);
  return found;
}

static void remove_mark(const char *folder, const shared_mark *mark) {
  char path[PATH_MAX];
  if (!*mark->name)
    return;
  mark_path(folder, mark, path);
  unlink(path);
}

/* Checks on every rank that `path` is the folder of rank 0. */
static petra_status compare_folders(petra_ranks *ranks, const char *path, shared_mark *mark) {
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_ranks_agree(ranks, ranks->rank == 0 ? set_mark(path, mark) : PETRA_OK, NULL));
  PETRA_TRY(petra_ranks_share(ranks, mark, sizeof *mark));
  if (ranks->rank > 0 && !find_mark(path, mark))
    status = petra_fail(PETRA_IO,
                        "%s: is not the folder of rank 0, which has just written %s there; expected a folder that all "
                        "processes share",
                        path, mark->name);
  return petra_ranks_agree(ranks, status, NULL);
}

petra_status petra_folder_share(const petra_config *config, const char *output, petra_ranks *ranks) {
  shared_mark mark = {0};
  PETRA_FREED char *path = NULL;
  petra_status status =
      ranks->rank == 0 ? petra_folder_of(config, output, &path) : petra_folder_of_run(config, output, &path);
  status = petra_ranks_agree(ranks, status, NULL);
  if (status == PETRA_OK)
    status = compare_folders(ranks, path, &mark);
  if (ranks->rank == 0)
    remove_mark(path, &mark);
  return status;
}

/* --- the folder of a run --- */

petra_status petra_folder_open(petra_folder *folder, const petra_config *config, const char *output,
                               petra_folder_use use) {
  *folder = (petra_folder){.open = -1};
  PETRA_TRY(petra_folder_of(config, output, &folder->path));
  PETRA_TRY(lock(folder));
  PETRA_TRY(petra_folder_admit(folder, config, use));
  return petra_folder_expand_config(config, &folder->config, &folder->config_size);
}

/* Writes /model/stages. */
static petra_status write_stages(const petra_folder *folder, const petra_plan *plan) {
  PETRA_FREED petra_stage_summary *rows = NULL;
  PETRA_TRY(petra_allocate(&rows, (size_t)plan->stages, sizeof *rows));
  for (int j = 0; j < plan->stages; j++)
    petra_plan_stage_summary(plan, j, &rows[j]);
  return petra_run_h5_stages(folder->run_h5, rows, plan->stages);
}

petra_status petra_folder_begin(petra_folder *folder, const petra_plan *plan, petra_run_h5_about *about) {
  PETRA_FREED char *path = NULL;
  if (folder->overwrites)
    PETRA_TRY(petra_folder_keep_earlier(folder, plan->config));
  PETRA_TRY(petra_join_path(folder->path, "run.h5", &path));
  about->config = folder->config;
  about->samples = petra_sample_kind_of(plan->config);
  about->seed = (uint64_t)plan->config->run.seed;
  about->actions = plan->config->run.trace_actions;
  about->stages = plan->stages;
  about->device_of = petra_program_devices(&plan->program) < plan->stages ? plan->program.device_of : NULL;
  PETRA_TRY(petra_run_h5_create(path, about, &folder->run_h5));
  PETRA_TRY(write_config(folder));
  return about->image || plan->config->cluster.stages > 0 ? PETRA_OK : write_stages(folder, plan);
}

petra_status petra_folder_complete(petra_folder *folder) {
  petra_run_h5 *run_h5 = folder->run_h5;
  PETRA_TRY(petra_run_h5_complete(run_h5));
  folder->run_h5 = NULL;
  PETRA_TRY(petra_run_h5_close(run_h5));
  return petra_folder_ended(folder);
}

void petra_folder_fini(petra_folder *folder) {
  petra_run_h5_close(folder->run_h5);
  petra_folder_restore(folder);
  if (folder->open >= 0)
    close(folder->open);
  PETRA_FREE_ALL(folder->config, folder->path);
}
