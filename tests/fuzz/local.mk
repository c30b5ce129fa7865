# SPDX-License-Identifier: Apache-2.0
# Fuzzers of what reads a schedule or a config. `make check` runs the corpus; `make fuzz` searches on from it with clang's
# libFuzzer, FUZZ_SECONDS each; `make fuzz-corpus` minimises what was found. See tests/fuzz/README.md.
check_PROGRAMS += tests/test_fuzz_corpus
TESTS += tests/test_fuzz_corpus
tests_test_fuzz_corpus_SOURCES = tests/test_fuzz_corpus.c tests/fuzz/fuzz.c tests/fuzz/fuzz.h tests/fuzz/fuzz_config.c \
  tests/fuzz/fuzz_run.c tests/fuzz/fuzz_run.h tests/fuzz/fuzz_schedule.c
EXTRA_DIST += tests/fuzz/README.md tests/fuzz/run tests/fuzz/entry.c tests/fuzz/config.dict tests/fuzz/schedule.dict \
  tests/fuzz/corpus

FUZZ_CC = clang
FUZZ_SECONDS = 600
FUZZ_FLAGS = -std=gnu11 -g -O1 $(AM_CPPFLAGS) -I$(top_srcdir)/tests/fuzz
FUZZ_FILES = tests/fuzz/entry.c tests/fuzz/fuzz.c tests/fuzz/fuzz_config.c tests/fuzz/fuzz_run.c tests/fuzz/fuzz_schedule.c \
  $(filter-out src/base/release.c,$(filter %.c,$(filter src/base/% src/config/% src/schedule/% sim/%,$(libpetra_a_SOURCES))))
FUZZ_RUN = FUZZ_CC='$(FUZZ_CC)' FUZZ_SECONDS='$(FUZZ_SECONDS)' FUZZ_FLAGS='$(FUZZ_FLAGS)' \
  FUZZ_FILES='$(addprefix $(srcdir)/,$(FUZZ_FILES))' FUZZ_LIBS='$(YAML_LIBS) $(JANSSON_LIBS) $(GSL_LIBS) $(XXHASH_LIBS) -lm' \
  srcdir='$(srcdir)' $(SHELL) $(srcdir)/tests/fuzz/run
.PHONY: fuzz fuzz-corpus
fuzz:
	$(FUZZ_RUN) search schedule
	$(FUZZ_RUN) search config
fuzz-corpus:
	$(FUZZ_RUN) merge schedule
	$(FUZZ_RUN) merge config
