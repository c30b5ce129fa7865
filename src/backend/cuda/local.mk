# src/backend/cuda: the kernels.
EXTRA_DIST += \
	src/backend/cuda/augment.cu \
	src/backend/cuda/convolution.h \
	src/backend/cuda/device.h \
	src/backend/cuda/elementwise.cu \
	src/backend/cuda/grid.h \
	src/backend/cuda/head.cu \
	src/backend/cuda/kernels.h \
	src/backend/cuda/lane.h \
	src/backend/cuda/matrix.h \
	src/backend/cuda/norm.cu \
	src/backend/cuda/pool.cu \
	src/backend/cuda/sgd.cu \
	src/backend/cuda/shuffle.cu \
	src/backend/cuda/tile.h
