# SPDX-License-Identifier: Apache-2.0
# src/backend/cpu: the backend on oneDNN and CBLAS. oneDNN is included by onednn*.c alone, CBLAS by blas.c and optim.c.
libpetra_a_SOURCES += \
	src/backend/cpu/attention.c \
	src/backend/cpu/blas.c \
	src/backend/cpu/cpu.h \
	src/backend/cpu/create.c \
	src/backend/cpu/elementwise.c \
	src/backend/cpu/kernels.c src/backend/cpu/kernels.h \
	src/backend/cpu/kernels_bf16.c \
	src/backend/cpu/kernels_quantise.c \
	src/backend/cpu/kernels_sequence.c \
	src/backend/cpu/linear.c \
	src/backend/cpu/loss.c \
	src/backend/cpu/norm.c \
	src/backend/cpu/onednn.c src/backend/cpu/onednn.h src/backend/cpu/onednn_version.h \
	src/backend/cpu/optim.c \
	src/backend/cpu/pooling.c \
	src/backend/cpu/primitives.c src/backend/cpu/primitives.h \
	src/backend/cpu/quantise.c \
	src/backend/cpu/sequence.c \
	src/backend/cpu/storage.c \
	src/backend/cpu/versions.h
if ONEDNN_3
libpetra_a_SOURCES += src/backend/cpu/onednn_3.c
else
libpetra_a_SOURCES += src/backend/cpu/onednn_2.c
endif
EXTRA_DIST += src/backend/cpu/onednn_2.c src/backend/cpu/onednn_3.c
EXTRA_DIST += src/backend/cpu/README.md
# As src/backend/ref_f*: kernels.c alone, since with -O2 and sanitizers kernels_*.c take minutes to compile.
%/kernels.$(OBJEXT): CFLAGS += $(SANITIZED_LOOPS_CFLAGS)
