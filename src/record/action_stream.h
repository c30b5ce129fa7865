/* SPDX-License-Identifier: Apache-2.0 */
/* An observer that writes a simulation as lines of text for another program: what is known before it begins, the order
 * of every device, then every action when it ends. analysis/petrapipe/chakra.py makes execution traces of them. */
#pragma once

#include "schedule/executor.h"
#include "sim/executor_virtual.h"

#include <stdio.h>

typedef struct petra_action_stream_options {
  const char *method; /* its name */
  /* The program that the executor runs, and how it runs it; borrowed. */
  const petra_program_ops *program;
  const petra_program_options *program_options;
  const petra_executor_virtual_options *executor;
  petra_status (*open)(FILE **out); /* starts the reader */
} petra_action_stream_options;

/* Creates the observer and starts the reader. Errors: PETRA_SCHEDULE for a program whose order
 * nodes of a device cannot express (locked), or with more messages than Chakra has tags; those of `open`. */
petra_status petra_action_stream_create(const petra_action_stream_options *options, petra_observer **out);

/* Call this after the run: a last line says that it is complete. The stream stays open. */
void petra_action_stream_finish(petra_observer *observer);

/* NULL is allowed. */
void petra_action_stream_destroy(petra_observer *observer);
