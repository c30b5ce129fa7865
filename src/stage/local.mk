# SPDX-License-Identifier: Apache-2.0
# src/stage: one stage of Algorithm 1.
libpetra_a_SOURCES += \
	src/stage/backward.c \
	src/stage/delay_mitigation.c src/stage/delay_mitigation.h \
	src/stage/forward.c \
	src/stage/quantisation.c \
	src/stage/snapshot.c \
	src/stage/stage.c src/stage/stage.h \
	src/stage/stage_archive.c src/stage/stage_archive.h \
	src/stage/stage_private.h \
	src/stage/stash.c \
	src/stage/step.c \
	src/stage/update.c
EXTRA_DIST += src/stage/README.md
