# SPDX-License-Identifier: Apache-2.0
# src/data: data sets, augmentation, and the loader with its threads.
libpetra_a_SOURCES += \
	src/data/cifar.c \
	src/data/data_sets.h \
	src/data/dataset.c src/data/dataset.h \
	src/data/grammar.c \
	src/data/files.c \
	src/data/hdf5_set.c \
	src/data/imagefolder.c \
	src/data/jpeg.c src/data/jpeg.h \
	src/data/loader.c src/data/loader.h \
	src/data/resize.c src/data/resize.h \
	src/data/sampler.c src/data/sampler.h \
	src/data/shapes.c \
	src/data/token_set.c
EXTRA_DIST += src/data/README.md
