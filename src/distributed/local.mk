# SPDX-License-Identifier: Apache-2.0
# src/distributed: an execution by several processes: links, transports, relay, worker and executor of a rank.
libpetra_a_SOURCES += \
	src/distributed/consistency_check.c \
	src/distributed/execution.c src/distributed/execution.h \
	src/distributed/execution_private.h \
	src/distributed/executor_ranks.c \
	src/distributed/loss_relay.c \
	src/distributed/rank_links.c \
	src/distributed/transport_peers.c \
	src/distributed/transport_ranks.c \
	src/distributed/worker_ranks.c
EXTRA_DIST += src/distributed/README.md
