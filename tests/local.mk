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

check_PROGRAMS += tests/test_cpu
TESTS += tests/test_cpu tests/test_cpu_avx2
EXTRA_DIST += tests/test_cpu_avx2
tests_test_cpu_SOURCES = tests/test_cpu.c tests/harness.h
tests_test_cpu_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cpu_LDADD = $(TESTS_LDADD)
