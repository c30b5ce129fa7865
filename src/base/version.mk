# SPDX-License-Identifier: Apache-2.0
# The version and the commit. The commit goes into a header that changes only when the commit does, so that nothing is
# compiled again without need.
libpetra_a_SOURCES += src/base/version.c src/base/version.h
src/base/version.$(OBJEXT): git_commit.h
git_commit.h: git-commit-always
	@commit=`$(SHELL) $(top_srcdir)/scripts/git-commit $(top_srcdir)`; \
	echo "#define GIT_COMMIT \"$$commit\"" >$@.new; \
	if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi
.PHONY: git-commit-always
CLEANFILES += git_commit.h
