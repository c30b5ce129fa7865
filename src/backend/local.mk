# src/backend: the operations contract, the registry, and the backends.
libpetra_a_SOURCES += \
	src/backend/backend.h \
	src/backend/registry.c \
	src/backend/tensor.c
