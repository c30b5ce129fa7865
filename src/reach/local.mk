# SPDX-License-Identifier: Apache-2.0
# src/reach: when trained runs reach a loss, in updates, seconds and bytes, on any cluster.
libpetra_a_SOURCES += \
	src/reach/cluster.c \
	src/reach/curve.c src/reach/curve.h \
	src/reach/group.c src/reach/group.h \
	src/reach/interval.c src/reach/interval.h \
	src/reach/over.c \
	src/reach/price.c src/reach/price.h \
	src/reach/reach.c src/reach/reach.h
EXTRA_DIST += src/reach/README.md
