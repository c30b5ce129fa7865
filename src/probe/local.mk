# SPDX-License-Identifier: Apache-2.0
# src/probe: gradient fidelity: references, cosines, their log.
libpetra_a_SOURCES += \
	src/probe/gradient_cosine.c src/probe/gradient_cosine.h \
	src/probe/probe.c src/probe/probe.h \
	src/probe/probe_archive.c \
	src/probe/probe_found.c \
	src/probe/probe_link.c src/probe/probe_link.h \
	src/probe/probe_log.c src/probe/probe_log.h \
	src/probe/probe_private.h \
	src/probe/probe_reference.c \
	src/probe/probe_wave.c \
	src/probe/probe_window.c
EXTRA_DIST += src/probe/README.md
