# SPDX-License-Identifier: Apache-2.0
# src/sweep: the cells of a grid, each a run in a process of its own.
libpetra_a_SOURCES += \
	src/sweep/cell.c \
	src/sweep/child.c \
	src/sweep/folder.c \
	src/sweep/run.c \
	src/sweep/slurm.c \
	src/sweep/summary.c \
	src/sweep/sweep.h
EXTRA_DIST += src/sweep/README.md
