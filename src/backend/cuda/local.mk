# src/backend/cuda: the backend on NVIDIA's GPUs. cuDNN is included by plan*.c alone, cuBLAS by matrix.c.
CUDA_SOURCES = \
	src/backend/cuda/convolution.h \
	src/backend/cuda/lane.h \
	src/backend/cuda/matrix.c src/backend/cuda/matrix.h \
	src/backend/cuda/plan.c src/backend/cuda/plan_private.h \
	src/backend/cuda/plan_graph.c \
	src/backend/cuda/plan_search.c
if HAVE_CUDA
libpetra_a_SOURCES += $(CUDA_SOURCES)
endif
EXTRA_DIST += $(CUDA_SOURCES) src/backend/cuda/device.h src/backend/cuda/kernels.h
