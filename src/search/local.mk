# SPDX-License-Identifier: Apache-2.0
# src/search: candidates for a config, their cuts and bounds; petra methods and petra plan.
libpetra_a_SOURCES += \
	src/search/candidate.c src/search/candidate.h \
	src/search/search.c src/search/search.h \
	src/search/search_cuts.c src/search/search_cuts.h
EXTRA_DIST += src/search/README.md
