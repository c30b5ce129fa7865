# SPDX-License-Identifier: Apache-2.0
# src/group: one process or several: the ranks of a run, and messages of bytes between them; MPI.
libpetra_a_SOURCES += \
	src/group/channel.c \
	src/group/launcher.c \
	src/group/mpi.c \
	src/group/progress_thread.c src/group/progress_thread.h \
	src/group/progress_thread_private.h \
	src/group/ranks.c src/group/ranks.h \
	src/group/wire.h
if !HAVE_MPI
AM_CPPFLAGS += -DPETRA_WITHOUT_MPI
endif
EXTRA_DIST += src/group/README.md
