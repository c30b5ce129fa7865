# SPDX-License-Identifier: Apache-2.0
# src/record: what a run leaves: run.h5 and its columns, actions, traces.
libpetra_a_SOURCES += \
	src/record/action_log.c src/record/action_log.h \
	src/record/chakra.c src/record/chakra.h \
	src/record/chakra_file.h \
	src/record/libraries.c \
	src/record/replay.c src/record/replay.h \
	src/record/run_h5.c src/record/run_h5.h \
	src/record/run_h5_read.c src/record/run_h5_read.h \
	src/record/run_h5_columns.c src/record/run_h5_columns.h \
	src/record/run_h5_tables.c \
	src/record/trace.c \
	src/record/training_log.c src/record/training_log.h

# One of the two: the writer of Chakra's files, or none. protoc-c makes the code of the messages.
if HAVE_PROTOBUF
libpetra_a_SOURCES += src/record/chakra_file.c
nodist_libpetra_a_SOURCES = src/record/chakra.pb-c.c
src/record/chakra_file.$(OBJEXT): src/record/chakra.pb-c.h
src/record/chakra.pb-c.c: $(srcdir)/src/record/chakra.proto
	@$(MKDIR_P) src/record
	$(AM_V_GEN)$(PROTOC_C) --proto_path=$(srcdir) --c_out=. $(srcdir)/src/record/chakra.proto
src/record/chakra.pb-c.h: src/record/chakra.pb-c.c
	@test -f $@ || { rm -f $< && $(MAKE) $(AM_MAKEFLAGS) $<; }
CLEANFILES += src/record/chakra.pb-c.c src/record/chakra.pb-c.h
else
libpetra_a_SOURCES += src/record/chakra_none.c
endif
EXTRA_DIST += src/record/README.md src/record/chakra.proto
