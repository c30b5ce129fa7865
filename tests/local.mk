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

# Scripts: the layers, the documents, the analysis scripts.
TESTS += tests/check_includes tests/check_docs tests/check_config_doc tests/check_analysis
EXTRA_DIST += tests/check_includes tests/check_docs tests/check_config_doc tests/check_analysis tests/lsan.supp
