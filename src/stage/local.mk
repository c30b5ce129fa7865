# SPDX-License-Identifier: Apache-2.0
# src/stage: one stage of Algorithm 1.
libpetra_a_SOURCES += \
	src/stage/archive.c src/stage/archive.h \
	src/stage/backward.c \
	src/stage/forward.c \
	src/stage/mitigation.c src/stage/mitigation.h \
	src/stage/probed_stage.c src/stage/probed_stage.h \
	src/stage/quantisation.c \
	src/stage/record.c \
	src/stage/snapshot.c \
	src/stage/stage.c src/stage/stage.h \
	src/stage/stage_private.h \
	src/stage/step.c \
	src/stage/update.c \
	src/stage/weight_stash.c
EXTRA_DIST += src/stage/README.md
