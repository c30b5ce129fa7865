# src/base: status, log, memory, random streams, config, output helpers. Includes nothing of ours but itself.
libpetra_a_SOURCES += \
	src/base/account.c src/base/account.h \
	src/base/log.c src/base/log.h \
	src/base/mem.c src/base/mem.h \
	src/base/rng.c src/base/rng.h \
	src/base/status.c src/base/status.h \
	src/base/version.c src/base/version.h

# The commit goes into a header that changes only when the commit does, so that nothing is compiled again without need.
src/base/version.$(OBJEXT): git_commit.h
git_commit.h: git-commit-always
	@commit=`$(SHELL) $(top_srcdir)/scripts/git-commit $(top_srcdir)`; \
	echo "#define GIT_COMMIT \"$$commit\"" >$@.new; \
	if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi
.PHONY: git-commit-always
CLEANFILES += git_commit.h
