# SPDX-License-Identifier: Apache-2.0
# make bundle: an archive that runs on a Linux machine without our libraries; make bundle-dir: the folder alone. With CUDA
# its libraries take nearly a gigabyte; BUNDLE_CUDA=no omits them.
BUNDLE_CUDA = yes
BUNDLE_XZ = xz -T0 -6
BUNDLE_NAME = $(PACKAGE)-$(VERSION)-linux-@BUNDLE_MACHINE@
BUNDLE_DIR = bundle/$(BUNDLE_NAME)
BUNDLE_ARCHIVE = $(BUNDLE_NAME).tar.xz
EXTRA_DIST += scripts/bundle.sh

# The program is linked again with another rpath. This is DT_RPATH, not DT_RUNPATH, because it also applies to the libraries'
# own needs and precedes the LD_LIBRARY_PATH of a cluster, whose HDF5 may differ. A bundle has no MPI, because that library
# belongs to the machine and opens parts of itself at run time. wire_none.o precedes the archive, so the linker does not take MPI
# from it. So does peers_none.o, because NCCL is only for runs on several processes.
# petra opens cuBLAS itself; it is linked here so that the archive gets it.
bundle/wire_none.o: src/group/mpi.c
	$(AM_V_at)$(MKDIR_P) bundle
	$(AM_V_CC)$(CC) $(DEFS) -DPETRA_WITHOUT_MPI $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -c -o $@ $<

BUNDLE_OBJECTS = bundle/wire_none.o
if HAVE_NCCL
BUNDLE_OBJECTS += bundle/peers_none.o
endif
bundle/peers_none.o: src/backend/cuda/cuda_peers.c
	$(AM_V_at)$(MKDIR_P) bundle
	$(AM_V_CC)$(CC) $(DEFS) -DPETRA_WITHOUT_NCCL $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -c -o $@ $<

BUNDLE_RPATH = -Wl,--disable-new-dtags '-Wl,-rpath,$$ORIGIN/../lib'
bundle/petra: $(petra_OBJECTS) $(petra_DEPENDENCIES) $(BUNDLE_OBJECTS)
	$(AM_V_CCLD)$(CCLD) $(AM_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(petra_OBJECTS) $(BUNDLE_OBJECTS) \
	  $(filter-out $(MPI_LIBS) -lnccl,$(petra_LDADD)) $(CUBLAS_LIBS) $(LIBS) $(BUNDLE_RPATH)

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
	rm -rf bundle gpu-kit gpu-kit.pack

# make gpu-kit makes a folder for a machine with a GPU, on which its gpu_suite.sh tests and measures. CIFAR_JPEG=PATH adds
# cifar10-jpeg.tar.xz. Its programs are linked as the bundle's, so that they need no LD_LIBRARY_PATH for what the kit brings.
CIFAR_JPEG =
KIT_DIR = gpu-kit
KIT_XZ = xz -T0 --x86 --lzma2=preset=6
KIT_LIBS = $(filter-out $(MPI_LIBS) -lnccl,$(TESTS_LDADD)) $(CUBLAS_LIBS) $(LIBS) $(BUNDLE_RPATH)
KIT_FILES = bundle/petra bundle/test_device_backend bundle/test_device_training bundle/test_device_identities bundle/test_device_precision \
  bundle/bench_device
EXTRA_DIST += scripts/gpu_kit.sh scripts/gpu_suite.sh
if HAVE_CUDA
KIT_LINK = $(AM_V_CCLD)$(CCLD) $(AM_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@
bundle/test_device_backend: $(tests_test_device_backend_OBJECTS) libpetra.a tests/libtests.a tests/libpetra_cuda_host.a $(BUNDLE_OBJECTS)
	$(KIT_LINK) $(tests_test_device_backend_OBJECTS) $(BUNDLE_OBJECTS) $(KIT_LIBS)
bundle/test_device_training: $(tests_test_device_training_OBJECTS) libpetra.a tests/libtests.a tests/libpetra_cuda_host.a $(BUNDLE_OBJECTS)
	$(KIT_LINK) $(tests_test_device_training_OBJECTS) $(BUNDLE_OBJECTS) $(KIT_LIBS)
bundle/test_device_identities: $(tests_test_device_identities_OBJECTS) libpetra.a tests/libtests.a tests/libpetra_cuda_host.a $(BUNDLE_OBJECTS)
	$(KIT_LINK) $(tests_test_device_identities_OBJECTS) $(BUNDLE_OBJECTS) $(KIT_LIBS)
bundle/test_device_precision: $(tests_test_device_precision_OBJECTS) libpetra.a tests/libtests.a tests/libpetra_cuda_host.a $(BUNDLE_OBJECTS)
	$(KIT_LINK) $(tests_test_device_precision_OBJECTS) $(BUNDLE_OBJECTS) $(KIT_LIBS)
bundle/bench_device: $(bench_bench_device_OBJECTS) libpetra.a tests/libtests.a tests/libpetra_cuda_host.a $(BUNDLE_OBJECTS)
	$(KIT_LINK) $(bench_bench_device_OBJECTS) $(BUNDLE_OBJECTS) $(KIT_LIBS)
MOSTLYCLEANFILES += $(KIT_FILES)
endif
.PHONY: gpu-kit
if HAVE_CUDA
gpu-kit: $(KIT_FILES)
	@LD_LIBRARY_PATH="$(CUDA_LIBRARY_PATH)$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}" KIT_XZ='$(KIT_XZ)' \
	  $(SHELL) $(top_srcdir)/scripts/gpu_kit.sh '$(KIT_DIR)' '$(top_srcdir)' '$(CIFAR_JPEG)'
else
gpu-kit:
	@echo "gpu-kit: this build has no CUDA (./configure --with-cuda)" >&2; exit 1
endif
