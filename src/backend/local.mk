# SPDX-License-Identifier: Apache-2.0
# src/backend: the operations contract, the registry, and the backends.
libpetra_a_SOURCES += \
	src/backend/backend.h \
	src/backend/dry.c \
	src/backend/element.h \
	src/backend/ops.c \
	src/backend/precision.c \
	src/backend/quantise.c src/backend/quantise.h \
	src/backend/ref.c \
	src/backend/ref_basic.inc \
	src/backend/ref_conv.inc \
	src/backend/ref_f64.c \
	src/backend/ref_head.inc \
	src/backend/registry.c src/backend/registry.h \
	src/backend/tensor.c src/backend/tensor.h \
	src/backend/tensor_archive.c src/backend/tensor_archive.h \
	src/backend/tensor_pool.c
EXTRA_DIST += src/backend/README.md

# src/backend/cpu: the backend on oneDNN and CBLAS. oneDNN is included by onednn.c alone, CBLAS by cpu_backend.c and cpu_optim.c.
libpetra_a_SOURCES += \
	src/backend/cpu/cpu.h \
	src/backend/cpu/cpu_attention.c \
	src/backend/cpu/cpu_backend.c \
	src/backend/cpu/cpu_convolution.c \
	src/backend/cpu/cpu_elementwise.c \
	src/backend/cpu/cpu_kernels.c src/backend/cpu/cpu_kernels.h \
	src/backend/cpu/cpu_kernels_bf16.c \
	src/backend/cpu/cpu_kernels_quantise.c \
	src/backend/cpu/cpu_kernels_sequence.c \
	src/backend/cpu/cpu_linear.c \
	src/backend/cpu/cpu_norm.c \
	src/backend/cpu/cpu_optim.c \
	src/backend/cpu/cpu_pooling.c \
	src/backend/cpu/cpu_quantise.c \
	src/backend/cpu/cpu_sequence.c \
	src/backend/cpu/cpu_storage.c \
	src/backend/cpu/onednn.c src/backend/cpu/onednn.h

# Behind the other flags: -O of CFLAGS would be the last. With -O2 and sanitizers cpu_kernels_*.c take minutes to compile.
src/backend/ref.$(OBJEXT) src/backend/ref_f64.$(OBJEXT): CFLAGS += $(SANITIZED_LOOPS_CFLAGS)
%/cpu_kernels.$(OBJEXT): CFLAGS += $(SANITIZED_LOOPS_CFLAGS)

# src/backend/cuda: the backend on CUDA, cuDNN and cuBLAS; compiled where ./configure found all three. Host files are C, by
# the C compiler; kernels (.cu) are compiled by nvcc. All of it is in a release archive, found or not.
CUDA_H_FILES = \
	src/backend/cuda/convolution.h \
	src/backend/cuda/cuda.h \
	src/backend/cuda/device.h \
	src/backend/cuda/grid.h \
	src/backend/cuda/info.h \
	src/backend/cuda/kernels.h \
	src/backend/cuda/lane.h \
	src/backend/cuda/matrix.h \
	src/backend/cuda/narrow.h \
	src/backend/cuda/norm.h \
	src/backend/cuda/plan_private.h \
	src/backend/cuda/segment.h \
	src/backend/cuda/sums.h \
	src/backend/cuda/tile.h
# What a test builds with a run time of its own.
CUDA_BACKEND_FILES = \
	src/backend/cuda/activation.c \
	src/backend/cuda/arithmetic.c \
	src/backend/cuda/conv_ops.c \
	src/backend/cuda/create.c \
	src/backend/cuda/graph.c \
	src/backend/cuda/launched.c \
	src/backend/cuda/linear_ops.c \
	src/backend/cuda/loss_ops.c \
	src/backend/cuda/norm_ops.c \
	src/backend/cuda/optim_ops.c \
	src/backend/cuda/segment.c \
	src/backend/cuda/sequence_ops.c \
	src/backend/cuda/storage.c \
	src/backend/cuda/transfer.c
# cuDNN's are plan*.c, cuBLAS's matrix.c.
CUDA_C_FILES = $(CUDA_BACKEND_FILES) \
	src/backend/cuda/info.c \
	src/backend/cuda/matrix.c \
	src/backend/cuda/plan.c \
	src/backend/cuda/plan_graph.c \
	src/backend/cuda/plan_measure.c \
	src/backend/cuda/plan_table.c
# NCCL's; what a build without it has instead.
if HAVE_NCCL
CUDA_C_FILES += src/backend/cuda/peers.c
EXTRA_DIST += src/backend/cuda/peers_none.c
else
CUDA_C_FILES += src/backend/cuda/peers_none.c
EXTRA_DIST += src/backend/cuda/peers.c
endif
CUDA_CU_FILES = \
	src/backend/cuda/attention.cu \
	src/backend/cuda/elementwise.cu \
	src/backend/cuda/embedding.cu \
	src/backend/cuda/layer_norm.cu \
	src/backend/cuda/linear.cu \
	src/backend/cuda/loss.cu \
	src/backend/cuda/norm.cu \
	src/backend/cuda/norm_backward.cu \
	src/backend/cuda/pool.cu \
	src/backend/cuda/optim.cu \
	src/backend/cuda/quantise.cu \
	src/backend/cuda/shuffle.cu

# In place of the above in a build without CUDA.
CUDA_NONE_FILES = src/backend/cuda/info_none.c

EXTRA_DIST += scripts/nvcc_no_spills scripts/sass_limits src/backend/cuda/norm.instructions
if HAVE_CUDA
libpetra_a_SOURCES += $(CUDA_H_FILES) $(CUDA_C_FILES) $(CUDA_CU_FILES)
else
libpetra_a_SOURCES += $(CUDA_NONE_FILES)
endif

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
EXTRA_DIST += src/backend/cuda/README.md
