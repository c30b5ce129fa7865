/* SPDX-License-Identifier: Apache-2.0 */
/* What mpirun, mpiexec or srun says of its launch in the environment: how many processes, and which of them this one is.
 * It is known before a library for messages starts, and where petra has none. */
#pragma once

#include <stdbool.h>

/* How many processes were launched together; 1 if no launcher says more. *name (NULL: not wanted): the variable that
 * says so, NULL if there is none. */
int petra_launcher_size(const char **name);

/* Which of them this process is, from 0. */
int petra_launcher_rank(void);

/* What all of them say, as an MPI library that starts writes such variables itself. */
enum { PETRA_LAUNCHER_SIZES = 6 };
typedef struct petra_launch {
  int size;         /* of petra_launcher_size */
  const char *name; /* likewise */
  int said[PETRA_LAUNCHER_SIZES];
} petra_launch;
petra_launch petra_launcher_look(void);

/* Whether a world of so many processes can be this launch: false if the launcher started more. */
bool petra_launcher_fits(const petra_launch *launch, int world);

/* Whether srun launched this process in a step of several without PMI, by which they would find each other. */
bool petra_launcher_lacks_pmi(void);

/* Whether the launcher ends all processes as soon as one of them fails: Open MPI's does, Hydra and srun only if asked to. */
bool petra_launcher_ends_all(void);

/* Removes what the launcher said from the environment: for processes that this one starts. */
void petra_launcher_forget(void);
