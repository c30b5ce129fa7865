# SPDX-License-Identifier: Apache-2.0
# sim: the discrete-event engine, costs, links, the virtual executor, the worker that only counts.
libpetra_a_SOURCES += \
	sim/cost.c sim/cost.h \
	sim/cycle.c sim/cycle.h \
	sim/engine.c sim/engine.h \
	sim/executor_cycle.c \
	sim/executor_device.c \
	sim/executor_virtual.c sim/executor_virtual.h \
	sim/executor_virtual_private.h \
	sim/fair.c sim/fair.h \
	sim/jitter.c \
	sim/ledger.c sim/ledger.h \
	sim/link.c sim/link.h \
	sim/observer_critical.c sim/observer_critical.h \
	sim/observer_memory.c sim/observer_memory.h \
	sim/rank_times.c sim/rank_times.h \
	sim/virtual_arrival.c \
	sim/worker_cost.c sim/worker_cost.h
EXTRA_DIST += sim/README.md
