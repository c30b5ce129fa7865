# SPDX-License-Identifier: Apache-2.0
# src/backend: the operations contract, the registry, and the backends.
libpetra_a_SOURCES += \
	src/backend/backend.h \
	src/backend/dry.c \
	src/backend/element.h \
	src/backend/journal.c src/backend/journal.h \
	src/backend/ops.c src/backend/ops.h src/backend/ops_sequence.inc \
	src/backend/peers.h \
	src/backend/pool.c src/backend/pool.h \
	src/backend/precision.c src/backend/precision.h \
	src/backend/quantise.c src/backend/quantise.h \
	src/backend/ref.c src/backend/ref.h \
	src/backend/ref_basic.inc \
	src/backend/ref_conv.inc \
	src/backend/ref_f32.c \
	src/backend/ref_f64.c \
	src/backend/ref_head.inc \
	src/backend/ref_real.inc \
	src/backend/registry.c src/backend/registry.h \
	src/backend/tensor.c \
	src/backend/tensor_archive.c src/backend/tensor_archive.h \
	src/backend/tensors.h

# Behind the other flags: -O of CFLAGS would be the last.
src/backend/ref_f%.$(OBJEXT): CFLAGS += $(SANITIZED_LOOPS_CFLAGS)
EXTRA_DIST += src/backend/README.md
