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

# The golden training runs: their data, and the scripts that made them.
check_PROGRAMS += tests/test_golden_data
TESTS += tests/test_golden_data
tests_test_golden_data_SOURCES = tests/test_golden_data.c tests/golden_data.c tests/golden_data.h tests/harness.h
tests_test_golden_data_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_golden_data_LDADD = $(TESTS_LDADD)

EXTRA_DIST += \
  tests/golden/init-revnet18.h5 tests/golden/init-revnet50.h5 tests/golden/init-resnet18.h5 tests/golden/init-resnet50.h5 \
  tests/golden/petra-revnet18-k1.h5 tests/golden/petra-revnet18-k3.h5 \
  tests/golden/petra-revnet50-k1.h5 tests/golden/petra-revnet50-k3.h5 \
  tests/golden/backprop-revnet18-k1.h5 tests/golden/backprop-revnet18-k3.h5 tests/golden/backprop-revnet50-k3.h5 \
  tests/golden/backprop-resnet18-k1.h5 tests/golden/backprop-resnet50-k1.h5 \
  tests/reference/README.md tests/reference/make_golden tests/reference/make_golden.py tests/reference/make_data.py \
  tests/reference/nets.py tests/reference/methods.py tests/reference/store.py tests/reference/run.py \
  tests/reference/compare.py tests/reference/selfcheck.py

# Golden files are remade by this target alone: make regen-golden PYTORCH_INTERPRETER=PATH (a Python with PyTorch and h5py).
PYTORCH_INTERPRETER = python3
.PHONY: regen-golden regen-golden-training
regen-golden: regen-golden-training
regen-golden-training:
	$(srcdir)/tests/reference/make_golden $(PYTORCH_INTERPRETER)
