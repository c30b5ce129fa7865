# SPDX-License-Identifier: Apache-2.0
# src/io: the files that a run writes. HDF5's headers are included in these .c files only.
libpetra_a_SOURCES += \
	src/io/checkpoint.c src/io/checkpoint.h \
	src/io/checkpoint_part.c \
	src/io/atomic_file.c src/io/atomic_file.h \
	src/io/data_file.c src/io/data_file.h \
	src/io/hdf5_file.c src/io/hdf5_file.h \
	src/io/hdf5_image.c src/io/hdf5_image.h \
	src/io/profile.c src/io/profile.h \
	src/io/profile_link.c src/io/profile_link.h \
	src/io/runlog.c src/io/runlog.h \
	src/io/runlog_columns.c src/io/runlog_create.c src/io/runlog_tables.c \
	src/io/runlog_simulate.h src/io/runlog_pace.h \
	src/io/runlog_private.h \
	src/io/runlog_probe.c src/io/runlog_probe.h \
	src/io/runlog_read.c src/io/runlog_read.h \
	src/io/runlog_schema.c src/io/runlog_schema.h \
	src/io/trace.c src/io/trace.h \
	src/io/weights.c src/io/weights.h \
	src/io/weights_compare.c src/io/weights_compare.h
EXTRA_DIST += docs/hdf5-schema.md
