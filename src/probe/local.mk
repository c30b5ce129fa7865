# SPDX-License-Identifier: Apache-2.0
# src/probe: gradient fidelity: references, cosines, results.
libpetra_a_SOURCES += \
	src/probe/gradient_cosine.c \
	src/probe/probe.c src/probe/probe.h \
	src/probe/probe_archive.c \
	src/probe/probe_exchange.c \
	src/probe/probe_private.h \
	src/probe/probe_reference.c \
	src/probe/probe_results.c \
	src/probe/probe_wave.c \
	src/probe/probe_window.c
EXTRA_DIST += src/probe/README.md
