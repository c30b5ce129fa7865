# SPDX-License-Identifier: Apache-2.0
# src/run: a run: opened, run to its end, closed; its folder.
libpetra_a_SOURCES += \
	src/run/banner.c src/run/banner.h \
	src/run/earlier_run.c \
	src/run/folder.c src/run/folder.h \
	src/run/loss_times.c src/run/loss_times.h \
	src/run/pace.c \
	src/run/run.c src/run/run.h \
	src/run/run_private.h \
	src/run/simulation.c src/run/simulation.h \
	src/run/training.c \
	src/run/training_files.c
EXTRA_DIST += src/run/README.md
