# SPDX-License-Identifier: Apache-2.0
# src/io: files of weights, profiles and data. HDF5's headers are included in few .c files only.
libpetra_a_SOURCES += \
	src/io/data_file.c src/io/data_file.h \
	src/io/file.c src/io/file.h \
	src/io/hdf5_file.c src/io/hdf5_file.h \
	src/io/profile_file.c src/io/profile_file.h \
	src/io/recorded_run.c src/io/recorded_run.h \
	src/io/weights.c src/io/weights.h
EXTRA_DIST += docs/hdf5-schema.md
EXTRA_DIST += src/io/README.md
