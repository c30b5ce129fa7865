# SPDX-License-Identifier: Apache-2.0
# src/exec: what runs a schedule on tensors: stages of a network, workers, transports, evaluation.
libpetra_a_SOURCES += \
	src/exec/evaluation.c src/exec/evaluation.h \
	src/exec/feed.c \
	src/exec/network.c src/exec/network.h \
	src/exec/network_weights.c \
	src/exec/pipeline.h \
	src/exec/probe_row.h \
	src/exec/replica_losses.c \
	src/exec/stage_observer.h \
	src/exec/stages.h \
	src/exec/transport.c src/exec/transport.h \
	src/exec/worker_action.c \
	src/exec/worker_evaluations.c \
	src/exec/worker_group.c \
	src/exec/worker_replicas.c src/exec/worker_replicas.h \
	src/exec/worker_stage.c \
	src/exec/worker_stage_private.h
EXTRA_DIST += src/exec/README.md
