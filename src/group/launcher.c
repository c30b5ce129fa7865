/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv, environ */
#include "group/ranks.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Open MPI and PRRTE; Hydra (MPICH, Intel MPI), Slurm's PMI-2 and Cray's PALS; MVAPICH's two; IBM's jsrun. */
static const char *const sizes[PETRA_LAUNCHER_SIZES] = {
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",          "PALS_SIZE", "MV2_COMM_WORLD_SIZE",
    "MVP_COMM_WORLD_SIZE",  "JSM_NAMESPACE_SIZE"};
static const char *const ranks[] = {
    "OMPI_COMM_WORLD_RANK", "PMI_RANK",          "PMIX_RANK", "PALS_RANKID", "MV2_COMM_WORLD_RANK",
    "MVP_COMM_WORLD_RANK",  "JSM_NAMESPACE_RANK"};
/* Counts the processes of one host. A Hydra that gives a port sets no other variable. */
static const char local[] = "MPI_LOCALNRANKS";
/* Slurm sets SLURM_NTASKS in the shell of a batch script as well. It sets this size and a task number only in a
 * step. */
static const char step_size[] = "SLURM_STEP_NUM_TASKS", step_rank[] = "SLURM_PROCID", step_id[] = "SLURM_STEP_ID";
static const unsigned long SPECIAL_STEP = 0xfffffff0; /* first of the numbers of batch scripts and interactive shells */

enum { SIZES = PETRA_LAUNCHER_SIZES, RANKS = sizeof ranks / sizeof *ranks };

/* Returns -1 if the variable is not set or is not a number. */
static int number_of(const char *name) {
  const char *text = getenv(name);
  char *end = NULL;
  const long value = text ? strtol(text, &end, 10) : -1;
  return text && end != text && *end == 0 && value >= 0 && value < 1 << 30 ? (int)value : -1;
}

static bool in_step(void) {
  const char *id = getenv(step_id);
  return number_of(step_size) > 0 && number_of(step_rank) >= 0 && !(id && strtoul(id, NULL, 10) >= SPECIAL_STEP);
}

/* Returns the largest size that a launcher of MPI says; 0: none. One launcher may have started another. */
static int size_by_launcher(const char **name) {
  int largest = 0;
  for (int i = 0; i < SIZES; i++)
    if (number_of(sizes[i]) > largest) {
      largest = number_of(sizes[i]);
      *name = sizes[i];
    }
  return largest;
}

/* mpirun itself starts its helpers on other hosts by srun. So the tasks of a step count only if no other launcher says
 * how many processes there are. */
int petra_launcher_size(const char **name) {
  const char *found = NULL;
  int size = size_by_launcher(&found);
  if (size == 0 && number_of(local) > 0) {
    size = number_of(local);
    found = local;
  }
  if (size == 0 && in_step()) {
    size = number_of(step_size);
    found = step_size;
  }
  for (int i = 0; i < RANKS && (!found || found == local); i++) /* the rank implies a minimum size */
    if (number_of(ranks[i]) >= size && number_of(ranks[i]) > 0) {
      size = number_of(ranks[i]) + 1;
      found = ranks[i];
    }
  if (name)
    *name = found;
  return size > 1 ? size : 1;
}

int petra_launcher_rank(void) {
  for (int i = 0; i < RANKS; i++)
    if (number_of(ranks[i]) >= 0)
      return number_of(ranks[i]);
  return in_step() ? number_of(step_rank) : 0;
}

petra_launch petra_launcher_look(void) {
  petra_launch launch = {0};
  launch.size = petra_launcher_size(&launch.name);
  for (int i = 0; i < SIZES; i++)
    launch.said[i] = number_of(sizes[i]);
  return launch;
}

/* A launcher may have been started by another: one of them must match the world. */
bool petra_launcher_fits(const petra_launch *launch, int world) {
  for (int i = 0; i < SIZES; i++)
    if (launch->said[i] == world)
      return true;
  return world >= launch->size;
}

bool petra_launcher_lacks_pmi(void) {
  const char *name;
  if (petra_launcher_size(&name) < 2 || name != step_size)
    return false;
  for (char **variable = environ; *variable; variable++)
    if (strncmp(*variable, "PMI", 3) == 0)
      return false;
  return true;
}

bool petra_launcher_ends_all(void) {
  const char *name;
  return petra_launcher_size(&name) > 1 && (strncmp(name, "OMPI", 4) == 0 || strncmp(name, "PMIX", 4) == 0);
}

void petra_launcher_forget(void) {
  for (int i = 0; i < SIZES; i++)
    unsetenv(sizes[i]);
  for (int i = 0; i < RANKS; i++)
    unsetenv(ranks[i]);
  unsetenv(local);
  unsetenv(step_size);
}
