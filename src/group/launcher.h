/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from the environment how mpirun, mpiexec or srun launched this process: how many processes there are, and which
 * one this is. This works before an MPI library starts, and if petra was built without one. */
#pragma once

#include <stdbool.h>

/* Returns how many processes were launched together; 1 if no launcher says more. *name (may be NULL) is set to the
 * variable that says so, or to NULL. */
int petra_launcher_size(const char **name);

/* Returns the number of this process among them, from 0. */
int petra_launcher_rank(void);

/* Stores what all launchers say. It is read before MPI starts, because an MPI library sets such variables itself. */
enum { PETRA_LAUNCHER_SIZES = 6 };
typedef struct petra_launch {
  int size;         /* result of petra_launcher_size */
  const char *name; /* its *name */
  int said[PETRA_LAUNCHER_SIZES];
} petra_launch;
petra_launch petra_launcher_look(void);

/* Returns true if a world of `world` processes can be this launch, false if the launcher started more. */
bool petra_launcher_fits(const petra_launch *launch, int world);

/* Returns true if srun launched this process in a step of several tasks without PMI, which they need to find each
 * other. */
bool petra_launcher_lacks_pmi(void);

/* Returns true if the launcher ends all processes as soon as one of them fails. Open MPI's does; Hydra and srun do only
 * on request. */
bool petra_launcher_ends_all(void);

/* Removes the launcher's variables from the environment, for processes that this one starts. */
void petra_launcher_forget(void);
