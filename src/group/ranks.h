/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of an executed run (run.mode: execute): which process this is, and what all of them agree on before and after
 * the training. Rank 0 speaks for all: what another rank has to say of a failure goes there, and is one line.
 *
 * What all ranks give, get or compare goes from rank to rank by the progress thread, and not by MPI's own collectives. A blocking collective would
 * not notice a rank that is lost, and would keep the library from the thread that notices it. A nonblocking one may be neither cancelled
 * nor left behind (MPI 4.0, 6.12): after a signal, or the failure of a rank that never comes to it, MPI_Finalize would hang. A receive of
 * the progress thread is cancelled then. */
#pragma once

#include "config/config.h"
#include "group/progress_thread.h"

enum { PETRA_RANKS_TIMEOUT_S = 60 }; /* where no config says cluster.timeout_s: its default */

typedef struct petra_ranks {
  petra_wire *wire;
  petra_progress_thread *progress;
  int rank, count;
  char host[64], name[128]; /* "rank 1 (host)" */
  double timeout_s;
  bool agreed;       /* a failure that all know of: they end together */
  uint64_t gathered; /* how often rank 0 got bytes of all */
} petra_ranks;

/* A group of one process, which nothing was launched for: it has no progress thread, and what it agrees on, gathers and shares is its own. */
#define PETRA_RANKS_ONE ((petra_ranks){.count = 1})

/* Before anything is logged: where mpirun or srun started this process as another rank than the first, its lines are held
 * back, as rank 0 finds the same in the same files. */
void petra_ranks_hold_lines(void);

/* For a command that writes and runs in one process: PETRA_USAGE if a launcher started several, each of which would write the
 * same files. `expected`: what to do instead. */
petra_status petra_ranks_alone(const char *command, const char *expected);

/* Writes the lines that were held back, after a failure that rank 0 did not tell: for the end of the program. */
void petra_ranks_release_lines(void);

/* Starts MPI: all processes of a launch come here, also one that has failed `before` (which is logged; alone it just gets that back):
 * all then fail together, with one line that names its host. PETRA_UNSUPPORTED if MPI does not find as many processes as the launcher
 * started. *out (NULL before) is set as soon as MPI has started, and petra_ranks_close is due then, whatever comes back. */
petra_status petra_ranks_open(double timeout_s, petra_status before, petra_ranks **out);

/* What all ranks come to at once: whether every one of them got here in order. PETRA_OK everywhere, or a failure
 * everywhere: that of the first rank that has one, whose line rank 0 logs, with its name. `text` (NULL: nothing) has to be
 * the same everywhere; PETRA_CONFIG, with the first line that differs, where it is not. */
petra_status petra_ranks_agree(petra_ranks *ranks, petra_status status, const char *text);

/* Rank 0 gets the bytes of every rank, its own included, in the order of ranks: each(context, rank, data, size). */
petra_status petra_ranks_gather(petra_ranks *ranks, const void *data, size_t size,
                                petra_status (*each)(void *context, int rank, const void *data, size_t size),
                                void *context);

/* The same into `rows`, an array of so many bytes a rank, which is there at rank 0. */
petra_status petra_ranks_gather_rows(petra_ranks *ranks, const void *row, size_t size, void *rows);

/* All ranks get the bytes of rank 0. */
petra_status petra_ranks_share(petra_ranks *ranks, void *data, size_t size);

/* Which host this is: its name, and which running kernel, as hosts may share a name. */
void petra_ranks_host_id(const petra_ranks *ranks, char *text, size_t size);

/* On how many hosts the ranks are; all ranks come here. */
petra_status petra_ranks_hosts(petra_ranks *ranks, int32_t *out);

/* Names the stages of this rank in messages: "rank 1 (host, stages 4 .. 6)". */
void petra_ranks_rename(petra_ranks *ranks, const char *stages);

/* The clock (base/clock.h) of this rank at the moment when that of rank 0 is 0: exact on one host, else from echoes. */
petra_status petra_ranks_clock_origin(petra_ranks *ranks, int64_t *origin_ns);

/* Ends the run where the thread that should is stuck, after the line that was held back. From any thread. */
void petra_ranks_end_all(petra_ranks *ranks, petra_status status);

/* Before what uses the progress thread is destroyed: after a signal tells the others. Whether petra_ranks_close will return: *status is
 * PETRA_OK or PETRA_STOPPED, or all ranks know of the failure. true for NULL. */
bool petra_ranks_end_together(petra_ranks *ranks, petra_status *status);

/* The end: of all ranks together where `status` is PETRA_OK on all of them, else rank 0 ends them all, after its line.
 * NULL is allowed. Returns the status that the program ends with. */
petra_status petra_ranks_close(petra_ranks *ranks, petra_status status);
