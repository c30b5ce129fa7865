# SPDX-License-Identifier: Apache-2.0
# src/run: a run: opened, run to its end, closed; its folder.
libpetra_a_SOURCES += \
	src/run/banner.c src/run/banner.h \
	src/run/estimate.c src/run/estimate.h \
	src/run/existing_run.c \
	src/run/folder.c src/run/folder.h \
	src/run/libraries.c src/run/libraries.h \
	src/run/overlap.c src/run/overlap.h \
	src/run/pace.c src/run/pace.h \
	src/run/plans_file.c src/run/plans_file.h \
	src/run/probe_log.c src/run/probe_log.h \
	src/run/rank_simulation.c src/run/rank_simulation.h \
	src/run/replay.c src/run/replay.h \
	src/run/run.c src/run/run.h \
	src/run/run_checkpoints.c \
	src/run/run_files.c \
	src/run/run_observers.c \
	src/run/run_private.h \
	src/run/simulation.c src/run/simulation.h \
	src/run/training.c
EXTRA_DIST += src/run/README.md
