# sim: the discrete-event engine, costs, the virtual executor.
libpetra_a_SOURCES += \
	sim/cost.c sim/cost.h \
	sim/engine.c sim/engine.h \
	sim/executor_virtual.c sim/executor_virtual.h
