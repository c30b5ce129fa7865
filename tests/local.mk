# tests: Check programs. Each forks nothing: OpenMP regions in a forked child of a process that had one hang.
AM_TESTS_ENVIRONMENT = CK_FORK=no; export CK_FORK; srcdir='$(srcdir)'; export srcdir;
LOG_COMPILER =
TESTS_LDADD = $(PETRA_LDADD) $(CHECK_LIBS)
TESTS_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) -I$(top_srcdir)/tests

check_PROGRAMS += tests/test_base
TESTS += tests/test_base
tests_test_base_SOURCES = tests/test_base.c tests/harness.h
tests_test_base_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_base_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_runlog tests/test_weights
TESTS += tests/test_runlog tests/test_weights tests/read_while_running.sh
tests_test_runlog_SOURCES = tests/test_runlog.c tests/io_child.h tests/harness.h
tests_test_runlog_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_runlog_LDADD = $(TESTS_LDADD)
tests_test_weights_SOURCES = tests/test_weights.c tests/io_child.h tests/harness.h
tests_test_weights_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_weights_LDADD = $(TESTS_LDADD)
EXTRA_DIST += tests/read_while_running.sh tests/read_while_running.py
