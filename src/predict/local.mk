# SPDX-License-Identifier: Apache-2.0
# src/predict: what a run will take, before it begins.
libpetra_a_SOURCES += \
	src/predict/memory.c src/predict/memory.h \
	src/predict/memory_pass.c
EXTRA_DIST += src/predict/README.md
