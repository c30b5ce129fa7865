# SPDX-License-Identifier: Apache-2.0
# make bundle: an archive that runs on a Linux machine without our libraries; make bundle-dir: the folder alone. With CUDA
# its libraries are most of a gigabyte: BUNDLE_CUDA=no leaves them out.
BUNDLE_CUDA = yes
BUNDLE_XZ = xz -T0 -6
BUNDLE_NAME = $(PACKAGE)-$(VERSION)-linux-@BUNDLE_MACHINE@
BUNDLE_DIR = bundle/$(BUNDLE_NAME)
BUNDLE_ARCHIVE = $(BUNDLE_NAME).tar.xz
EXTRA_DIST += scripts/bundle.sh

# The program once more, with another rpath. DT_RPATH, not DT_RUNPATH: it holds for what the libraries themselves need, and
# goes before the LD_LIBRARY_PATH of a cluster, whose HDF5 may be another. Without MPI: its library is the machine's own, with
# parts that it opens while it runs; wire_none.o goes before the archive, whose wire_mpi.o is then not wanted. So does peers_none.o,
# as NCCL is for runs on several processes alone.
bundle/wire_none.o: src/wire/wire_none.c
	$(AM_V_at)$(MKDIR_P) bundle
	$(AM_V_CC)$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -c -o $@ $<

BUNDLE_OBJECTS = bundle/wire_none.o
if HAVE_NCCL
BUNDLE_OBJECTS += bundle/peers_none.o
endif
bundle/peers_none.o: src/backend/cuda/peers_none.c
	$(AM_V_at)$(MKDIR_P) bundle
	$(AM_V_CC)$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -c -o $@ $<

bundle/petra: $(petra_OBJECTS) $(petra_DEPENDENCIES) $(BUNDLE_OBJECTS)
	$(AM_V_CCLD)$(CCLD) $(AM_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(petra_OBJECTS) $(BUNDLE_OBJECTS) \
	  $(filter-out $(MPI_LIBS) -lnccl,$(petra_LDADD)) $(LIBS) \
	  -Wl,--disable-new-dtags '-Wl,-rpath,$$ORIGIN/../lib'

# ldd finds CUDA's libraries where the compiler did, since this program's rpath does not name that folder.
.PHONY: bundle bundle-dir
bundle-dir: bundle/petra petra$(EXEEXT)
	@rm -rf '$(BUNDLE_DIR)'
	@LD_LIBRARY_PATH="$(CUDA_LIBRARY_PATH)$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}" \
	  $(SHELL) $(top_srcdir)/scripts/bundle.sh '$(BUNDLE_DIR)' bundle/petra '$(top_srcdir)' $(BUNDLE_CUDA)

bundle: bundle-dir
	tar -cf - -C bundle --owner=0 --group=0 --numeric-owner $(BUNDLE_NAME) | $(BUNDLE_XZ) >$(BUNDLE_ARCHIVE).part
	mv -f $(BUNDLE_ARCHIVE).part $(BUNDLE_ARCHIVE)
	@ls -l $(BUNDLE_ARCHIVE)

MOSTLYCLEANFILES += bundle/petra $(BUNDLE_OBJECTS)
CLEANFILES += $(BUNDLE_ARCHIVE) $(BUNDLE_ARCHIVE).part
clean-local: clean-bundle clean-html
.PHONY: clean-bundle
clean-bundle:
	rm -rf bundle gpu-kit gpu-kit.bundle

# make gpu-kit: a folder to carry to a machine with a GPU, where its gpu_suite.sh tests and measures; CIFAR_JPEG=PATH takes
# cifar10-jpeg.tar.xz along.
CIFAR_JPEG =
KIT_FILES = tests/test_device_backend tests/test_device_training tests/test_device_identities tests/test_device_precision tests/cuda_plans bench/bench_device
EXTRA_DIST += scripts/gpu_kit.sh scripts/gpu_suite.sh
.PHONY: gpu-kit
if HAVE_MPI
gpu-kit:
	@echo "gpu-kit: the tests of this build want its MPI library, which another machine has not (./configure --with-cuda --with-mpi=no)" >&2; exit 1
else
if HAVE_CUDA
gpu-kit: bundle/petra petra$(EXEEXT) $(KIT_FILES)
	@LD_LIBRARY_PATH="$(CUDA_LIBRARY_PATH)$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}" \
	  $(SHELL) $(top_srcdir)/scripts/gpu_kit.sh gpu-kit '$(top_srcdir)' '$(CIFAR_JPEG)'
else
gpu-kit:
	@echo "gpu-kit: this build has no CUDA (./configure --with-cuda)" >&2; exit 1
endif
endif
