# src/base: status, log, memory, random streams, config, output helpers. Includes nothing of ours but itself.
libpetra_a_SOURCES += \
	src/base/account.c src/base/account.h \
	src/base/log.c src/base/log.h \
	src/base/mem.c src/base/mem.h \
	src/base/rng.c src/base/rng.h \
	src/base/status.c src/base/status.h
