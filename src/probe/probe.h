/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of gradient fidelity: for chosen update windows they compare the gradient that a stage's update takes with two
 * exact ones (docs/semantics/gradient-fidelity.md). The worker notifies the probe of what it does. The probe copies
 * weights and images, which count in its own account. It does not affect the training: results are bit-identical.
 *
 * Every process of a run has a probe, which computes the part of its own stages. The probes decide which references to
 * compute next, and with which versions, from the order of the actions of all stages, so all of them make the same
 * decisions (docs/adr/0025). A single process with all stages follows the same rules. */
#pragma once

#include "backend/tensor_archive.h"
#include "exec/network.h"
#include "exec/probe_row.h"
#include "exec/stage_observer.h"

typedef struct petra_probe petra_probe;

/* Receives a complete probe on rank 0, in the order of microbatches. A failure ends the run. */
typedef petra_status (*petra_probe_row_writer)(void *context, const petra_probe_row *row);

/* Creates the probe of a network; if all replicas are here, of the network of replica 0. The plan of the network must
 * have its program. probe.per_epoch is the number of probes per epoch, evenly spaced; there may be fewer, because
 * windows of k microbatches do not overlap. With probe.gradients, rows contain the gradients. All arguments are
 * borrowed. */
petra_status petra_probe_create(const petra_network *network, petra_probe_row_writer row, void *context,
                                petra_probe **out);
/* Drops probes that are not complete; NULL is allowed. */
void petra_probe_destroy(petra_probe *probe);

/* Returns the observer for the worker of replica `replica` (from 0), which must be here. All replicas report a group of
 * actions (from begins to done), in the order of replicas, before the next group. The probe reads weights and gradients
 * when the first replica here reports, because the gradients of an update are then the mean over the replicas. From the
 * other replicas it takes only the data that differ between replicas: images and labels, and the true and the
 * reconstructed inputs. */
petra_stage_observer *petra_probe_observer(petra_probe *probe, int replica);

/* With a progress thread: returns the observer that is notified of the groups of actions of all stages (begins,
 * done). */
petra_stage_observer *petra_probe_groups(petra_probe *probe);

/* Reads or writes the state that all processes of a run have in common, in a part of a checkpoint. When reading, the
 * probe must be new. */
petra_status petra_probe_archive(petra_probe *probe, petra_tensor_archive *tensors);

/* Reads or writes the data that the probe stores for stage `stage` (from 1) of a replica that is here, in the stage's
 * part of a checkpoint. Call petra_probe_drain before writing. When reading, read the stage first, and call
 * petra_probe_archive before this function. Tensors count under an account that the archive knows. */
petra_status petra_probe_archive_stage(petra_probe *probe, int replica, int32_t stage, petra_tensor_archive *tensors);

/* All processes call this at the same position in the order of actions. Afterwards all references that were begun are
 * computed, and rank 0 has delivered the rows of all complete windows. NULL: no probe. */
petra_status petra_probe_drain(petra_probe *probe);

/* Returns the account of the probe of this process. */
petra_account *petra_probe_account(petra_probe *probe);

/* Call this after the last action of the run; NULL: no probe. */
petra_status petra_probe_finish(petra_probe *probe);
