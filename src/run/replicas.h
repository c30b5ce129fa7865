/* SPDX-License-Identifier: Apache-2.0 */
/* The replicas of an emulated run (cluster.replicas): pipelines with the same weights in one process, each with its part of every
 * microbatch. Replica 0 is the run's own pipeline; the others are made here. docs/semantics/replicas.md. */
#pragma once

#include "probe/probe.h"
#include "plan/pipeline.h"

typedef struct petra_replicas petra_replicas;

/* `pipelines` has room for cluster.replicas; the first, whose network is initialised, is there, and the others, on its backend
 * and with its initial weights, come into it. Borrowed. */
petra_status petra_replicas_create(petra_pipeline **pipelines, petra_replicas **out);
void petra_replicas_destroy(petra_replicas *replicas); /* before the first goes; NULL is allowed */

/* For the worker of replica 0, in place of the list `observers`: these are told evaluations, and losses once all replicas have told
 * them; `probe` (NULL: none) is told by all. */
petra_status petra_replicas_observe(petra_replicas *replicas, petra_stage_observer *observers, petra_probe *probe,
                                    petra_stage_observer **out);

/* Starts the others with the options of replica 0, which was started; *out is the worker of all for the executor. */
petra_status petra_replicas_start(petra_replicas *replicas, const petra_pipeline_options *options, petra_worker **out);

/* As petra_pipeline_stop, of the others. NULL is allowed. */
void petra_replicas_stop(petra_replicas *replicas);
