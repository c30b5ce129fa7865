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
	src/backend/cuda/cuda.h \
	src/backend/cuda/cuda_device.h \
	src/backend/cuda/cuda_kernels.h \
	src/backend/cuda/cuda_libraries.h \
	src/backend/cuda/cudnn_private.h
# What a test builds with a run time of its own.
CUDA_BACKEND_FILES = \
	src/backend/cuda/cuda_backend.c \
	src/backend/cuda/cuda_graph.c \
	src/backend/cuda/cuda_memory.c \
	src/backend/cuda/cuda_ops_elements.c \
	src/backend/cuda/cuda_ops_images.c \
	src/backend/cuda/cuda_ops_sequences.c \
	src/backend/cuda/cuda_peers.c \
	src/backend/cuda/cuda_segment.c
CUDNN_FILES = \
	src/backend/cuda/cudnn_convolution.c \
	src/backend/cuda/cudnn_graph.c \
	src/backend/cuda/cudnn_measure.c \
	src/backend/cuda/cudnn_table.c
CUDA_C_FILES = $(CUDA_BACKEND_FILES) $(CUDNN_FILES) src/backend/cuda/cublas.c
if !HAVE_NCCL
AM_CPPFLAGS += -DPETRA_WITHOUT_NCCL
endif
CUDA_CU_FILES = \
	src/backend/cuda/cuda_attention.cu \
	src/backend/cuda/cuda_elementwise.cu \
	src/backend/cuda/cuda_embedding.cu \
	src/backend/cuda/cuda_layer_norm.cu \
	src/backend/cuda/cuda_loss.cu \
	src/backend/cuda/cuda_norm.cu \
	src/backend/cuda/cuda_optim.cu \
	src/backend/cuda/cuda_pool.cu \
	src/backend/cuda/cuda_quantise.cu \
	src/backend/cuda/cuda_shuffle.cu

EXTRA_DIST += scripts/nvcc_no_spills scripts/sass_limits src/backend/cuda/norm.instructions
libpetra_a_SOURCES += src/backend/cuda/cuda_info.c
if HAVE_CUDA
libpetra_a_SOURCES += $(CUDA_H_FILES) $(CUDA_C_FILES) $(CUDA_CU_FILES)
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
