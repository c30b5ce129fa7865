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

check_PROGRAMS += tests/test_config
TESTS += tests/test_config
tests_test_config_SOURCES = tests/test_config.c tests/config_cases.h tests/harness.h
tests_test_config_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_config_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_output
TESTS += tests/test_output
tests_test_output_SOURCES = tests/test_output.c tests/harness.h
tests_test_output_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_output_LDADD = $(TESTS_LDADD)
