/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a run, one or more: the number of this process, and the agreements of all processes before and after
 * the training. Rank 0 reports for all: it receives the failure of another rank and logs one line.
 *
 * Collective exchanges use the progress thread, not MPI's own collectives. A blocking collective would not notice a
 * lost rank, and would keep the library from the thread that notices it. A nonblocking collective can be neither
 * cancelled nor abandoned (MPI 4.0, 6.12): after a signal, or if a failed rank never joins, MPI_Finalize would hang. A
 * receive of the progress thread is cancelled instead. */
#pragma once

#include "config/config.h"
#include "group/progress_thread.h"

#include <stdbool.h>

enum { PETRA_RANKS_TIMEOUT_S = 60 }; /* default of cluster.timeout_s, if there is no config */

typedef struct petra_ranks {
  petra_wire *wire;
  petra_progress_thread *progress;
  int rank, count;
  char host[64], name[128]; /* "rank 1 (host)" */
  double timeout_s;
  bool agreed;       /* all know of a failure: they end together */
  uint64_t gathered; /* how many times rank 0 has gathered */
  /* The agreement on a checkpoint of a group of one: the period, when it began, the position of the last checkpoint. */
  int64_t every_ns, since_ns, last;
  bool discards;
} petra_ranks;

/* A group of one process, without a launch and without a progress thread: it agrees, gathers and shares with itself. */
#define PETRA_RANKS_ONE ((petra_ranks){.count = 1, .last = -1})

/* The work of a rank of an executed run between its first action and the end of the run, by the wall clock. */
typedef struct petra_rank_summary {
  char host[64];
  /* Time in actions without the next two; packing and unpacking messages; waiting for messages and for room; total. */
  int64_t computing_ns, copying_ns, waiting_ns, wall_ns;
  int64_t messages, bytes; /* sent to other ranks */
} petra_rank_summary;

/* Call this before anything is logged. If mpirun or srun started this process as a rank other than 0, its lines are
 * kept back, because rank 0 finds the same errors in the same files. */
void petra_ranks_hold_lines(void);

/* For a command that writes and runs in one process: returns PETRA_USAGE if a launcher started several, because each
 * would write the same files. `expected` says what to do instead. */
petra_status petra_ranks_alone(const char *command, const char *expected);

/* Writes the lines that were kept back if rank 0 did not report the failure. Call this at the end of the program. */
void petra_ranks_release_lines(void);

/* Starts MPI. All processes of a launch call this, even a process that has already failed with the status `before`
 * (which is logged): then all processes fail together, with one line that names the host of the failed process. A
 * process that is alone returns `before`. PETRA_UNSUPPORTED if MPI finds fewer processes than the launcher started.
 * *out (NULL before) is set as soon as MPI has started: then call petra_ranks_close even on failure. */
petra_status petra_ranks_open(double timeout_s, petra_status before, petra_ranks **out);

/* All ranks call this together. Returns PETRA_OK if every rank came without a failure. Otherwise every rank returns the
 * failure of the first rank that has failed, and rank 0 logs the line of that rank, with its name. `text` (NULL: none)
 * must be the same on all ranks, otherwise all return PETRA_CONFIG, and the logged line has the first line that
 * differs. */
petra_status petra_ranks_agree(petra_ranks *ranks, petra_status status, const char *text);

/* Rank 0 receives the bytes of every rank, including rank 0, in the order of ranks: each(context, rank, data, size). */
petra_status petra_ranks_gather(petra_ranks *ranks, const void *data, size_t size,
                                petra_status (*each)(void *context, int rank, const void *data, size_t size),
                                void *context);

/* Gathers `size` bytes of each rank into the array `rows` on rank 0. */
petra_status petra_ranks_gather_rows(petra_ranks *ranks, const void *row, size_t size, void *rows);

/* All ranks receive the bytes of rank 0. */
petra_status petra_ranks_share(petra_ranks *ranks, void *data, size_t size);

/* --- the agreement on a checkpoint (progress_thread.h), which a group of one reaches at once --- */

void petra_ranks_agreement_start(petra_ranks *ranks, int64_t every_ns, int64_t position);
bool petra_ranks_agreement_discard(petra_ranks *ranks, bool discards);

/* Call this at position `done`, before the rank passes on to `next`. It may wait for the other ranks. *agreed is true
 * if all ranks write a checkpoint here; *then is what they do afterwards. *waited_ns is the time of waiting. */
petra_status petra_ranks_agreement_reach(petra_ranks *ranks, int64_t done, int64_t next, bool *agreed,
                                         petra_agreed *then, int64_t *waited_ns);

/* Measures the time to the next checkpoint from now; with `agreed` this rank has written a checkpoint on which the
 * ranks agreed. */
void petra_ranks_agreement_leave(petra_ranks *ranks, bool agreed);

/* Identifies this host: its name and its running kernel, because hosts may share a name. */
void petra_ranks_host_id(const petra_ranks *ranks, char *text, size_t size);

/* Counts the hosts of the ranks; all ranks call this. */
petra_status petra_ranks_hosts(petra_ranks *ranks, int32_t *out);

/* Names the stages of this rank in messages: "rank 1 (host, stages 4 .. 6)". */
void petra_ranks_rename(petra_ranks *ranks, const char *stages);

/* Returns the clock (base/clock.h) of this rank at the moment when the clock of rank 0 is 0: exact on one host, else
 * estimated from echoes. */
petra_status petra_ranks_clock_origin(petra_ranks *ranks, int64_t *origin_ns);

/* Ends the run if the thread that should end it is stuck. First logs the line that was kept back. Any thread may call
 * this. */
void petra_ranks_end_all(petra_ranks *ranks, petra_status status);

/* Call this before the objects that use the progress thread are destroyed. After a signal it notifies the other ranks,
 * and rank 0 or the only process writes the line of the stop. Returns true if petra_ranks_close will return: *status is
 * PETRA_OK or PETRA_STOPPED, or all ranks know of the failure. Returns true for NULL. */
bool petra_ranks_end_together(petra_ranks *ranks, petra_status *status);

/* Ends all ranks together if `status` is PETRA_OK on all of them; otherwise logs the line of the failure, on rank 0 if
 * possible, and ends all ranks. NULL is allowed. Returns the status that the program ends with. */
petra_status petra_ranks_close(petra_ranks *ranks, petra_status status);

/* Reads from the environment how mpirun, mpiexec or srun launched this process: how many processes there are, and which
 * one this is. This works before an MPI library starts, and if petra was built without one. */

/* Returns how many processes were launched together; 1 if no launcher says more. *name (may be NULL) is set to the
 * variable that says so, or to NULL. */
int petra_launcher_size(const char **name);

/* Returns the number of this process, from 0, among the processes that were launched together. */
int petra_launcher_rank(void);

/* Removes the launcher's variables from the environment, for processes that this one starts. */
void petra_launcher_forget(void);
