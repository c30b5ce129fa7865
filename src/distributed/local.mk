# SPDX-License-Identifier: Apache-2.0
# src/distributed: a run over several processes.
libpetra_a_SOURCES += \
	src/distributed/best_weights.c src/distributed/best_weights.h \
	src/distributed/consistency_check.c src/distributed/consistency_check.h \
	src/distributed/execution.c src/distributed/execution.h \
	src/distributed/executor_arrival.c src/distributed/executor_arrival.h \
	src/distributed/loss_relay.c src/distributed/loss_relay.h \
	src/distributed/peers_wire.c src/distributed/peers_wire.h \
	src/distributed/random_delays.c src/distributed/random_delays.h \
	src/distributed/rank_links.c src/distributed/rank_links.h \
	src/distributed/rank_times.c src/distributed/rank_times.h \
	src/distributed/transport_peers.c src/distributed/transport_peers.h \
	src/distributed/transport_ranks.c src/distributed/transport_ranks.h \
	src/distributed/worker_ranks.c src/distributed/worker_ranks.h
EXTRA_DIST += src/distributed/README.md
