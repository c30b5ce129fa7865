/* The probes of a training run: probe.per_epoch and probe.gradients of the config, their rows in run.h5. */
#ifndef PETRA_CLI_PROBE_LOG_H
#define PETRA_CLI_PROBE_LOG_H

#include "cli/setup.h"
#include "exec/probe.h"
#include "io/runlog_probe.h"

typedef struct petra_probe_log {
  const petra_setup *setup;
  const petra_program_options *program;
  petra_probe *probe;      /* for the worker; NULL where the config asks for none */
  petra_runlog_probe *log; /* NULL likewise */
  petra_runlog_parameter *parameters;
  const petra_probe_row *row;   /* that is being written */
  const petra_tensor **tensors; /* its gradients, [gradient][parameter] */
} petra_probe_log;

/* `setup` has its stages; everything is borrowed. `resumed`: `runlog` is one that is gone on with. The log must stay
 * where it is until petra_probe_log_fini, which is due whatever came back. */
petra_status petra_probe_log_init(petra_probe_log *log, const petra_setup *setup, const petra_program_options *program,
                                  petra_runlog *runlog, bool resumed);

/* Logs what the probes held. Before run.h5 is closed. */
petra_status petra_probe_log_finish(petra_probe_log *log);

void petra_probe_log_fini(petra_probe_log *log);

#endif
