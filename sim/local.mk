# sim: the discrete-event engine, costs, links, the virtual executor.
libpetra_a_SOURCES += \
	sim/arrival.c \
	sim/cost.c sim/cost.h \
	sim/device.c sim/device.h \
	sim/engine.c sim/engine.h \
	sim/executor_private.h \
	sim/executor_virtual.c sim/executor_virtual.h \
	sim/fair.c sim/fair.h \
	sim/inbox.c \
	sim/link.c sim/link.h
