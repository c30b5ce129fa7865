# SPDX-License-Identifier: Apache-2.0
# src/record: what a run leaves: run.h5 and its columns, actions, traces.
libpetra_a_SOURCES += \
	src/record/action_log.c src/record/action_log.h \
	src/record/action_stream.c src/record/action_stream.h \
	src/record/libraries.c \
	src/record/probe_log.c src/record/probe_log.h \
	src/record/replay.c src/record/replay.h \
	src/record/run_h5.c src/record/run_h5.h \
	src/record/run_h5_columns.c src/record/run_h5_columns.h \
	src/record/run_h5_tables.c \
	src/record/trace.c \
	src/record/training_log.c src/record/training_log.h
EXTRA_DIST += src/record/README.md
