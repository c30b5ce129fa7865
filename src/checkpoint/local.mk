# SPDX-License-Identifier: Apache-2.0
# src/checkpoint: checkpoints of a run, the weights of its best evaluation.
libpetra_a_SOURCES += \
	src/checkpoint/best_weights.c \
	src/checkpoint/checkpoint_file.c \
	src/checkpoint/checkpoint_state.c \
	src/checkpoint/checkpoints.c src/checkpoint/checkpoints.h \
	src/checkpoint/manifest.c src/checkpoint/manifest.h
EXTRA_DIST += src/checkpoint/README.md
