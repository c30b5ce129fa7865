# SPDX-License-Identifier: Apache-2.0
# src/stage: one stage of Algorithm 1.
libpetra_a_SOURCES += \
	src/stage/archive.c src/stage/archive.h \
	src/stage/backward.c \
	src/stage/forward.c \
	src/stage/fidelity.c src/stage/fidelity.h \
	src/stage/probe.c src/stage/probe.h \
	src/stage/mitigation.c src/stage/mitigation.h \
	src/stage/record.c src/stage/record.h \
	src/stage/snapshot.c \
	src/stage/stage.c src/stage/stage.h src/stage/stage_private.h \
	src/stage/step.c \
	src/stage/update.c \
	src/stage/versions.c src/stage/versions.h
