# SPDX-License-Identifier: Apache-2.0
# src and sim: which files become the library and the program, and the rules of single files. scripts/list-sources finds the
# files by their names and writes the lists *_FILES to sources.mk. A file that was added or removed changes the lists at the
# next make.
$(srcdir)/sources.mk: sources-always
	@$(SHELL) $(top_srcdir)/scripts/list-sources
.PHONY: sources-always git-commit-always

noinst_LIBRARIES += libpetra.a
libpetra_a_SOURCES = $(LIBRARY_FILES) src/backend/cuda/cuda_info.c
bin_PROGRAMS += petra
petra_SOURCES = $(PROGRAM_FILES)
petra_LDADD = $(PETRA_LDADD)
EXTRA_DIST += scripts/list-sources $(OTHER_FILES)

# src/backend/cuda: compiled if ./configure found CUDA, cuDNN and cuBLAS. Host files are C, by the C compiler; kernels (.cu) are
# compiled by nvcc. All of it is in a release archive, found or not.
if HAVE_CUDA
libpetra_a_SOURCES += $(CUDA_BACKEND_FILES) $(CUDNN_FILES) $(CUDA_OTHER_FILES)
endif
if !HAVE_NCCL
AM_CPPFLAGS += -DPETRA_WITHOUT_NCCL
endif
if !HAVE_MPI
AM_CPPFLAGS += -DPETRA_WITHOUT_MPI
endif

# src/base/release.c: the version and the commit. The commit goes into a header that changes only when the commit does, so that
# nothing is compiled again without need.
src/base/release.$(OBJEXT): git_commit.h
git_commit.h: git-commit-always
	@commit=`$(SHELL) $(top_srcdir)/scripts/git-commit $(top_srcdir)`; \
	echo "#define GIT_COMMIT \"$$commit\"" >$@.new; \
	if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi
CLEANFILES += git_commit.h

# Where an installed petra finds its subcommands in Python, and the Python that configure found for them.
src/cli/python.$(OBJEXT): AM_CPPFLAGS += -DPETRA_ANALYSIS_DIR='"$(analysisdir)"' -DPETRA_PYTHON='"$(PETRA_PYTHON)"'

# Behind the other flags: -O of CFLAGS would be the last. With -O2 and sanitizers cpu_kernels_*.c take minutes to compile.
src/backend/ref.$(OBJEXT) src/backend/ref_f64.$(OBJEXT): CFLAGS += $(SANITIZED_LOOPS_CFLAGS)
%/cpu_kernels.$(OBJEXT): CFLAGS += $(SANITIZED_LOOPS_CFLAGS)

EXTRA_DIST += scripts/nvcc_no_spills scripts/sass_limits
# No exceptions, type information or guards of statics: gcc then links without C++'s library. ptxas counts spills.
NVCC_FLAGS = -std=c++17 $(NVCC_GENCODE) -Xptxas -v $(NVCC_WERROR) \
	-Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
NVCC_COMPILE = $(NVCC) $(DEFS) $(DEFAULT_INCLUDES) -I$(top_srcdir)/src -I$(top_srcdir) $(NVCC_FLAGS) $(NVCCFLAGS)
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =

# What an object depends on lies beside those of the C files, as .Pcu: nvcc writes another form than automake's depcomp.
CUDA_DEPDIR = src/backend/cuda/$(DEPDIR)
SUFFIXES = .cu
.cu.$(OBJEXT):
	$(AM_V_NVCC)$(MKDIR_P) $(@D)/$(DEPDIR) && \
	$(SHELL) $(top_srcdir)/scripts/nvcc_no_spills $@ $(NVCC_COMPILE) \
	  -MMD -MP -MT $@ -MF $(@D)/$(DEPDIR)/$(*F).Pcu -c -o $@ $<
CLEANFILES += $(CUDA_DEPDIR)/*.Pcu
-include $(wildcard $(CUDA_DEPDIR)/*.Pcu)
