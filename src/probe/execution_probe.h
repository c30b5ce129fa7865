/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of an executed run: the one probe is at rank 0; a tap at every rank sends it what it needs of the rank's stages. */
#ifndef PETRA_PROBE_EXECUTION_PROBE_H
#define PETRA_PROBE_EXECUTION_PROBE_H

#include "probe/probe_replay.h"
#include "probe/probe_tap.h"
#include "plan/network.h"

/* The two ends of a plan's probe, but for where parcels go and come from; `stages` are of replica `replica`. `backend`, `rank_of`
 * ([replica][stage]) and what the plan has are borrowed. */
petra_probe_tap_options petra_execution_probe_tap_of(const petra_plan *plan, petra_backend *backend,
                                                     petra_stages stages, int replica, petra_parcel_outlet outlet);
petra_probe_replay_options petra_execution_probe_replay_of(const petra_plan *plan, petra_backend *backend,
                                                           const int32_t *rank_of, petra_parcel_inlet inlet);

typedef struct petra_execution_probe petra_execution_probe;

/* Everything is borrowed; the network has its plan and placement. `way`: the number of the ways to rank 0 (group/progress_thread.h).
 * PETRA_CONFIG where a parcel is larger than a message can be. */
petra_status petra_execution_probe_create(const petra_network *network, int way, petra_execution_probe **out);
void petra_execution_probe_destroy(petra_execution_probe *probe); /* NULL is allowed; before the probe */

/* Rank 0 makes its probe with this source; NULL on other ranks, which have none. */
petra_probe_source *petra_execution_probe_source(petra_execution_probe *probe);
void petra_execution_probe_attach(petra_execution_probe *probe, petra_probe *to);

/* For the worker of the stages that are here; the list for who goes through the actions of all stages (begins, done). */
petra_stage_observer *petra_execution_probe_observer(petra_execution_probe *probe);
petra_stage_observer *petra_execution_probe_groups(petra_execution_probe *probe);

/* In a run that goes on from a checkpoint, on every rank: of every group of actions that it has done, before any other, and
 * after the probe was read from it (petra_probe_archive, at rank 0). It is complete there if, before it was written, rank 0
 * heard with `wait`. */
petra_status petra_execution_probe_pass(petra_execution_probe *probe, const petra_action *actions, int count);

/* Rank 0 tells its probe what has come (now and then; between windows this costs nothing); on others nothing. `wait`: all
 * that the schedule has come to, so that nothing of the probe is elsewhere. */
petra_status petra_execution_probe_hear(petra_execution_probe *probe, bool wait);

#endif
