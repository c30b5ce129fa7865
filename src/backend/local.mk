# src/backend: the operations contract, the registry, and the backends.
libpetra_a_SOURCES += \
	src/backend/backend.h \
	src/backend/check_shapes.c \
	src/backend/check_shapes.h \
	src/backend/ops.c \
	src/backend/ops.h \
	src/backend/pool.h \
	src/backend/registry.c \
	src/backend/registry.h \
	src/backend/tensor.c
