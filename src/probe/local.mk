# SPDX-License-Identifier: Apache-2.0
# src/probe: gradient fidelity: references, cosines, their log.
libpetra_a_SOURCES += \
	src/probe/execution_probe.c src/probe/execution_probe.h \
	src/probe/gradient_cosine.c src/probe/gradient_cosine.h \
	src/probe/probe.c src/probe/probe.h \
	src/probe/probe_archive.c \
	src/probe/probe_demand.c src/probe/probe_demand.h \
	src/probe/probe_log.c src/probe/probe_log.h \
	src/probe/probe_parcel.c src/probe/probe_parcel.h \
	src/probe/probe_private.h \
	src/probe/probe_reference.c \
	src/probe/probe_replay.c src/probe/probe_replay.h \
	src/probe/probe_replay_private.h \
	src/probe/probe_replay_take.c \
	src/probe/probe_source.c src/probe/probe_source.h \
	src/probe/probe_store.c src/probe/probe_store.h \
	src/probe/probe_tap.c src/probe/probe_tap.h \
	src/probe/probe_window.c
EXTRA_DIST += src/probe/README.md
