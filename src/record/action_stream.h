/* SPDX-License-Identifier: Apache-2.0 */
/* An observer that writes a simulation as lines of text for another program: first the facts that are known before the
 * simulation begins and the order of every device, then every action when it ends. analysis/petrapipe/chakra.py
 * converts these lines to execution traces. */
#pragma once

#include "schedule/executor.h"
#include "sim/executor_virtual.h"

#include <stdio.h>

typedef struct petra_action_stream_options {
  const char *method; /* name of the method */
  /* The program that the executor runs, and its options; borrowed. */
  const petra_program_ops *program;
  const petra_program_options *program_options;
  const petra_executor_virtual_options *executor;
  petra_status (*open)(FILE **out); /* starts the reader */
} petra_action_stream_options;

/* Creates the observer and starts the reader. Errors: PETRA_SCHEDULE for a program whose order cannot be expressed by
 * the nodes of a device (locked), or that has more messages than Chakra has tags; the errors of `open`. */
petra_status petra_action_stream_create(const petra_action_stream_options *options, petra_observer **out);

/* Call this after the run. It writes a last line, which says that the run is complete. The stream stays open. */
void petra_action_stream_finish(petra_observer *observer);

/* NULL is allowed. */
void petra_action_stream_destroy(petra_observer *observer);
