/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hdf5.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- files --- */

/* The reason why a file could not be opened, from HDF5's error stack. */
typedef struct failure {
  char reason[256]; /* the innermost message */
  bool locked, left_open;
} failure;

static herr_t take_entry(unsigned index, const H5E_error2_t *entry, void *context) {
  failure *f = context;
  const char *text = entry->desc ? entry->desc : "";
  (void)index;
  if (!f->reason[0])
    snprintf(f->reason, sizeof f->reason, "%s", text);
  f->locked |= strstr(text, "unable to lock file") != NULL;
  f->left_open |= strstr(text, "h5clear") != NULL;
  return 0;
}

static petra_status refuse_file(const char *path, const failure *f) {
  if (f->locked)
    return petra_fail(PETRA_IO, "%s: is locked by another process; wait for it to end, or read a copy of the file",
                      path);
  if (f->left_open)
    return petra_fail(PETRA_DATA,
                      "%s: is marked as open for writing: its writer is still running, or was killed; after a kill, "
                      "`h5clear -s` makes the file readable",
                      path);
  return petra_fail(PETRA_DATA, "%s: damaged or truncated HDF5 file: %s", path,
                    f->reason[0] ? f->reason : "unknown HDF5 error");
}

void petra_hdf5_close_local(int64_t *id) {
  if (*id >= 0)
    H5Idec_ref(*id);
}

bool petra_hdf5_is_file(const char *path) {
  htri_t found;
  H5dont_atexit();
  H5E_BEGIN_TRY {
    found = H5Fis_hdf5(path);
  }
  H5E_END_TRY;
  return found > 0;
}

petra_status petra_hdf5_open_file(const char *path, int64_t *out) {
  failure f = {0};
  if (!petra_hdf5_is_file(path))
    return petra_fail(PETRA_DATA, "%s: not an HDF5 file", path);
  PETRA_HDF5_CLOSED hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  hid_t file = -1;
  if (H5Pset_file_locking(access, 0, 1) >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0)
    file = H5Fopen(path, H5F_ACC_RDONLY, access);
  if (file < 0) {
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_entry, &f); /* before the next call, which clears the stack */
    return refuse_file(path, &f);
  }
  *out = file;
  return PETRA_OK;
}

/* --- data sets --- */

enum { NAME_BYTES = 512 };

/* Gets the path of `name` within the file: "/train/images". */
static void print_name(hid_t folder, const char *name, char out[NAME_BYTES]) {
  char parent[NAME_BYTES / 2] = "";
  if (name[0] != '/' && H5Iget_name(folder, parent, sizeof parent) <= 1)
    parent[0] = 0; /* the root, or unknown */
  snprintf(out, NAME_BYTES, "%s%s%.255s", parent, name[0] == '/' ? "" : "/", name);
}

/* HDF5 calls this when a path passes through a link to another file: stores the file's name and does not follow the
 * link. */
static herr_t refuse_link(const char *parent_file, const char *parent_group, const char *file, const char *object,
                          unsigned *flags, hid_t access, void *context) {
  (void)parent_file, (void)parent_group, (void)object, (void)flags, (void)access;
  snprintf(context, NAME_BYTES, "%s", *file ? file : "another file");
  return -1;
}

static bool has_all_chunks(hid_t set, hid_t space, hid_t list) {
  hsize_t extent[H5S_MAX_RANK], chunk[H5S_MAX_RANK], expected = 1, found = 0;
  const int rank = H5Sget_simple_extent_dims(space, extent, NULL);
  if (rank < 1 || H5Pget_chunk(list, rank, chunk) != rank || H5Dget_num_chunks(set, space, &found) < 0)
    return false;
  for (int d = 0; d < rank; d++)
    expected *= extent[d] / chunk[d] + (extent[d] % chunk[d] != 0);
  return found >= expected;
}

static bool is_written(hid_t set, hid_t space, hid_t list) {
  const H5D_layout_t layout = H5Pget_layout(list);
  if (H5Sget_simple_extent_npoints(space) == 0 || layout == H5D_COMPACT)
    return true;
  if (layout == H5D_CHUNKED)
    return has_all_chunks(set, space, list);
  return H5Dget_storage_size(set) > 0 && H5Dget_offset(set) != HADDR_UNDEF;
}

static petra_status check_values(const char *path, const char *name, hid_t set, bool whole) {
  char other[NAME_BYTES] = "";
  PETRA_HDF5_CLOSED hid_t space = H5Dget_space(set), list = H5Dget_create_plist(set);
  if (space < 0 || list < 0)
    return petra_fail(PETRA_DATA, "%s: %s: damaged data set", path, name);
  if (H5Pget_layout(list) == H5D_VIRTUAL)
    return petra_fail(PETRA_DATA,
                      "%s: %s is a virtual data set, a view of others; expected a data set that contains its values",
                      path, name);
  if (H5Pget_external_count(list) > 0) {
    H5Pget_external(list, 0, sizeof other - 1, other, NULL, NULL);
    return petra_fail(PETRA_DATA, "%s: %s keeps its values in another file (%s); expected them in this file", path,
                      name, other);
  }
  if (H5Sget_simple_extent_type(space) == H5S_NULL)
    return petra_fail(PETRA_DATA, "%s: %s has no values (a null dataspace)", path, name);
  if (whole && !is_written(set, space, list))
    return petra_fail(PETRA_DATA, "%s: %s was never written%s", path, name,
                      H5Dget_storage_size(set) > 0 ? " in full: parts of it are missing" : "");
  return PETRA_OK;
}

static petra_status refuse_foreign(const char *path, const char *name, const char *file) {
  return petra_fail(PETRA_DATA, "%s: %s is a link to another file (%s); expected the values in this file", path, name,
                    file);
}

petra_status petra_hdf5_open_set(const char *path, int64_t folder, const char *name, bool whole, int64_t *out) {
  char full[NAME_BYTES], file[NAME_BYTES] = "";
  PETRA_HDF5_CLOSED hid_t access = H5Pcreate(H5P_LINK_ACCESS), set = -1;
  *out = -1;
  print_name(folder, name, full);
  if (H5Pset_elink_cb(access, refuse_link, file) >= 0)
    set = H5Oopen(folder, name, access);
  if (*file)
    return refuse_foreign(path, full, file);
  if (set < 0 || H5Iget_type(set) != H5I_DATASET)
    return PETRA_OK;
  PETRA_TRY(check_values(path, full, set, whole));
  *out = set;
  set = -1; /* stays open */
  return PETRA_OK;
}

/* --- links --- */

typedef struct walk {
  const char *path;
  petra_status status;
} walk;

static herr_t look_at_link(hid_t root, const char *name, const H5L_info_t *info, void *context) {
  walk *w = context;
  char value[NAME_BYTES] = "", full[NAME_BYTES];
  const char *file = "of an unknown kind", *object;
  unsigned flags;
  if (info->type == H5L_TYPE_HARD || info->type == H5L_TYPE_SOFT)
    return 0;
  if (info->type == H5L_TYPE_EXTERNAL && info->u.val_size <= sizeof value &&
      H5Lget_val(root, name, value, sizeof value, H5P_DEFAULT) >= 0)
    H5Lunpack_elink_val(value, info->u.val_size, &flags, &file, &object);
  print_name(root, name, full);
  w->status = refuse_foreign(w->path, full, file);
  return 1;
}

petra_status petra_hdf5_check_links(const char *path, int64_t file) {
  walk w = {path, PETRA_OK};
  if (H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, look_at_link, &w) < 0 && w.status == PETRA_OK)
    return petra_fail(PETRA_DATA, "%s: damaged HDF5 file: its links cannot be listed", path);
  return w.status;
}

/* The limits of a child. The memory limit is in addition to the memory that the process already uses. A small file
 * needs little memory and time. */
enum { MEMORY_BYTES = 256 << 20, MEMORY_PER_BYTE = 16, SECONDS = 5, BYTES_PER_SECOND = 20000000 };

/* A child of a process with several threads may wait for ever: for a lock that another thread held during the fork. It
 * then uses no processor time. After this many seconds it ends, and another child is started. */
static unsigned wait_seconds = 60;
enum { CHILDREN = 3 };

void petra_guard_set_wait(unsigned seconds) {
  wait_seconds = seconds;
}

/* A child's first line goes to its parent. */
static void send_line(void *context, petra_log_level level, const char *line) {
  if (level == PETRA_LOG_ERROR && write(*(int *)context, line, strlen(line)) < 0)
    _exit(PETRA_IO);
}

/* Returns the size of the address space of this process in bytes; 0 if it is not known. */
static uint64_t address_space(void) {
  long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%lld", &pages) != 1)
    pages = 0;
  if (file)
    fclose(file);
  return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void limit(int resource, uint64_t maximum) {
  struct rlimit now;
  if (getrlimit(resource, &now) != 0)
    return;
  if (now.rlim_cur == RLIM_INFINITY || now.rlim_cur > maximum)
    now.rlim_cur = maximum;
  setrlimit(resource, &now);
}

/* Runs in the child. Crashes stay silent, whatever would report them. */
static void run_child(const char *path, petra_status (*read)(void *context), void *context, int lines) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  struct stat about;
  uint64_t bytes = stat(path, &about) == 0 ? (uint64_t)about.st_size : 0, space = address_space();
  int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
    signal(fatal[i], SIG_DFL);
  if (null >= 0) {
    dup2(null, 1);
    dup2(null, 2);
  }
  signal(SIGALRM, SIG_DFL);
  alarm(wait_seconds + (unsigned)(bytes / BYTES_PER_SECOND));
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, SECONDS + bytes / BYTES_PER_SECOND);
  if (space > 0)
    limit(RLIMIT_AS, space + MEMORY_BYTES + MEMORY_PER_BYTE * bytes);
  petra_log_set_sink(send_line, &lines);
  _exit((int)read(context));
}

/* Reads the child's line to its end and waits for the child. Returns the status of waitpid; -1 if waiting failed. */
static int wait_for(pid_t child, int lines, char *line, size_t size) {
  size_t length = 0;
  int status;
  for (ssize_t got = 1; got != 0 && length + 1 < size;) {
    got = read(lines, line + length, size - 1 - length);
    if (got < 0 && errno != EINTR)
      break;
    if (got > 0)
      length += (size_t)got;
  }
  line[length] = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return -1;
  return status;
}

/* Reads in a child. Returns the status of waitpid, and the child's line; -1 if there is no status: errno then has the
 * reason. */
static int read_in_child(const char *path, petra_status (*read)(void *context), void *context, char *line,
                         size_t size) {
  int lines[2];
  if (pipe(lines) != 0)
    return -1;
  pid_t child = fork();
  if (child == 0) {
    close(lines[0]);
    run_child(path, read, context, lines[1]);
  }
  int reason = errno;
  close(lines[1]);
  int status = child < 0 ? -1 : wait_for(child, lines[0], line, size);
  close(lines[0]);
  errno = reason;
  return status;
}

petra_status petra_guard(const char *path, petra_status (*read)(void *context), void *context) {
  char line[1024];
  petra_seal seal;
  int status = -1;
  PETRA_TRY(petra_seal_check(path, &seal));
  PETRA_TRY(petra_reserve(0));
  if (seal == PETRA_SEAL_WHOLE)
    return read(context);
  for (int i = 0; i < CHILDREN; i++) {
    status = read_in_child(path, read, context, line, sizeof line);
    if (status < 0)
      return petra_fail(PETRA_IO, "%s: cannot be read in a separate process: %s", path, strerror(errno));
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM)
      break;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == PETRA_OK)
    return read(context);
  if (WIFEXITED(status) && line[0])
    return petra_fail((petra_status)WEXITSTATUS(status), "%s", line);
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL))
    return petra_fail(PETRA_DATA, "%s: damaged file: reading it takes too long for its size", path);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    return petra_fail(PETRA_IO, "%s: cannot be read: %d processes waited for %u s and longer without an end", path,
                      CHILDREN, wait_seconds);
  return petra_fail(PETRA_DATA, "%s: damaged file: HDF5 crashes or runs out of memory on it", path);
}
