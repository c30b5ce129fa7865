# SPDX-License-Identifier: Apache-2.0
# src/execute: a run over several processes.
libpetra_a_SOURCES += \
	src/execute/best_weights.c src/execute/best_weights.h \
	src/execute/consistency_check.c src/execute/consistency_check.h \
	src/execute/execution.c src/execute/execution.h \
	src/execute/execution_checkpoint.c \
	src/execute/execution_gather.c \
	src/execute/execution_private.h \
	src/execute/executor_arrival.c src/execute/executor_arrival.h \
	src/execute/loss_relay.c src/execute/loss_relay.h \
	src/execute/overlap.c src/execute/overlap.h \
	src/execute/pace.c src/execute/pace.h \
	src/execute/peers_wire.c src/execute/peers_wire.h \
	src/execute/random_delays.c src/execute/random_delays.h \
	src/execute/rank_links.c src/execute/rank_links.h \
	src/execute/rank_simulation.c src/execute/rank_simulation.h \
	src/execute/rank_times.c src/execute/rank_times.h \
	src/execute/transport_peers.c src/execute/transport_peers.h \
	src/execute/transport_ranks.c src/execute/transport_ranks.h \
	src/execute/worker_ranks.c src/execute/worker_ranks.h
