# SPDX-License-Identifier: Apache-2.0
# src/exec: what runs a schedule on tensors: stages of a network, workers, transports, evaluation.
libpetra_a_SOURCES += \
	src/exec/deferred_work.c src/exec/deferred_work.h \
	src/exec/evaluate.c src/exec/evaluate.h \
	src/exec/feed.c src/exec/feed.h \
	src/exec/network.c src/exec/network.h \
	src/exec/network_weights.c \
	src/exec/pipeline.c src/exec/pipeline.h \
	src/exec/replica_losses.c src/exec/replica_losses.h \
	src/exec/stage_observer.h \
	src/exec/stages.h \
	src/exec/tensor_bytes.c src/exec/tensor_bytes.h \
	src/exec/transport.h \
	src/exec/transport_local.c src/exec/transport_local.h \
	src/exec/worker_action.c \
	src/exec/worker_evaluations.c \
	src/exec/worker_group.c \
	src/exec/worker_losses.c \
	src/exec/worker_replicas.c src/exec/worker_replicas.h \
	src/exec/worker_stage.c src/exec/worker_stage.h \
	src/exec/worker_stage_private.h
EXTRA_DIST += src/exec/README.md
