# SPDX-License-Identifier: Apache-2.0
# src/wire: the ranks of a run and messages of bytes between them.
libpetra_a_SOURCES += src/wire/launcher.c src/wire/launcher.h
libpetra_a_SOURCES += src/wire/carrier.c src/wire/carrier.h src/wire/carrier_private.h src/wire/way.c src/wire/wire.h
if HAVE_MPI
libpetra_a_SOURCES += src/wire/wire_mpi.c
EXTRA_DIST += src/wire/wire_none.c
else
libpetra_a_SOURCES += src/wire/wire_none.c
EXTRA_DIST += src/wire/wire_mpi.c
endif
