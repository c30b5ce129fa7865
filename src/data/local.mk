# SPDX-License-Identifier: Apache-2.0
# src/data: data sets, augmentation, and the loader with its threads.
libpetra_a_SOURCES += \
	src/data/cifar.c \
	src/data/dataset.c src/data/dataset.h \
	src/data/grammar.c \
	src/data/files.c src/data/files.h \
	src/data/hdf5_layout.h \
	src/data/hdf5_set.c \
	src/data/image_sets.h \
	src/data/imagefolder.c \
	src/data/jpeg.h \
	src/data/jpeg_header.c \
	src/data/loader.c src/data/loader.h \
	src/data/resize.c src/data/resize.h \
	src/data/sampler.c src/data/sampler.h \
	src/data/shapes.c \
	src/data/token_set.c \
	src/data/token_sets.h

# One of the two: the decoder of JPEG images, or none.
if HAVE_TURBOJPEG
libpetra_a_SOURCES += src/data/jpeg_turbo.c
else
libpetra_a_SOURCES += src/data/jpeg_none.c
endif
EXTRA_DIST += src/data/README.md
