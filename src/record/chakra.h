/* SPDX-License-Identifier: Apache-2.0 */
/* An observer that writes a simulation as execution traces of MLCommons Chakra, the workloads of ASTRA-sim: one file
 * per device (chakra_file.h). docs/formats.md describes the nodes.
 *
 * F, B, W and U are compute nodes; E takes no time and is none. A message between devices is a node of its sender and
 * one of its receiver, written when the action that uses it has ended; so a message that nobody takes has none. A node
 * waits for others of its device only: for its data, and by the rules of schedule/program.h for the order. Nothing
 * depends on when an action started in this simulation, so the network of the reader determines that. */
#pragma once

#include "schedule/executor.h"
#include "schedule/program.h"
#include "sim/executor_virtual.h"

typedef struct petra_chakra_options {
  const char *directory;
  bool overwrite;
  const char *method; /* its name, for the metadata */
  /* The program that the executor runs, and how it runs it; borrowed. */
  const petra_program_ops *program;
  const petra_program_options *program_options;
  const petra_executor_virtual_options *executor;
} petra_chakra_options;

/* Creates the observer and its files. Errors: PETRA_SCHEDULE for a program whose order the format cannot express
 * (locked), or with more messages than the format has tags; those of petra_chakra_files_create. */
petra_status petra_chakra_observer_create(const petra_chakra_options *options, petra_observer **out);

/* Call this after the run: completes the files. */
petra_status petra_chakra_observer_finish(petra_observer *observer);

/* Discards the files if they were not finished. NULL is allowed. */
void petra_chakra_observer_destroy(petra_observer *observer);
