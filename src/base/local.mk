# SPDX-License-Identifier: Apache-2.0
# src/base: status, log, memory, random streams, threads, output helpers. Includes nothing of ours but itself.
libpetra_a_SOURCES += \
	src/base/archive.c src/base/archive.h \
	src/base/clock.h \
	src/base/hdf5.c src/base/hdf5.h \
	src/base/json.c src/base/json.h \
	src/base/kernel.h \
	src/base/log.c src/base/log.h \
	src/base/mem.c src/base/mem.h \
	src/base/progress.c src/base/progress.h \
	src/base/rng.c src/base/rng.h \
	src/base/seal.c src/base/seal.h \
	src/base/status.h \
	src/base/stop.c src/base/stop.h \
	src/base/text.c src/base/text.h \
	src/base/threads.c src/base/threads.h \
	src/base/utf8.c src/base/utf8.h
EXTRA_DIST += src/base/README.md

# The version and the commit. The commit goes into a header that changes only when the commit does, so that nothing is
# compiled again without need.
libpetra_a_SOURCES += src/base/release.c src/base/release.h
src/base/release.$(OBJEXT): git_commit.h
git_commit.h: git-commit-always
	@commit=`$(SHELL) $(top_srcdir)/scripts/git-commit $(top_srcdir)`; \
	echo "#define GIT_COMMIT \"$$commit\"" >$@.new; \
	if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi
.PHONY: git-commit-always
CLEANFILES += git_commit.h
