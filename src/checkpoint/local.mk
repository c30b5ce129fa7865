# SPDX-License-Identifier: Apache-2.0
# src/checkpoint: checkpoints: manifest, parts, resume.
libpetra_a_SOURCES += \
	src/checkpoint/checkpoint_file.c src/checkpoint/checkpoint_file.h \
	src/checkpoint/checkpoint_state.c \
	src/checkpoint/checkpoints.c src/checkpoint/checkpoints.h \
	src/checkpoint/manifest.c src/checkpoint/manifest.h
EXTRA_DIST += src/checkpoint/README.md
