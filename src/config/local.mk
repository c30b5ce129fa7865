# SPDX-License-Identifier: Apache-2.0
# src/config: the keys of a config, files with them.
libpetra_a_SOURCES += \
	src/config/compare.c \
	src/config/config.c src/config/config.h \
	src/config/config_private.h \
	src/config/document.c \
	src/config/keys.c \
	src/config/optimiser.c src/config/optimiser.h \
	src/config/print.c \
	src/config/value.c
EXTRA_DIST += src/config/README.md
