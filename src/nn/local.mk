# SPDX-License-Identifier: Apache-2.0
# src/nn: networks as tables, their blocks, optimiser, learning rate, partition.
libpetra_a_SOURCES += \
	src/nn/attention.c \
	src/nn/block.c src/nn/block.h src/nn/blocks.h \
	src/nn/downsample.c \
	src/nn/embedding.c \
	src/nn/function.c \
	src/nn/graph.c src/nn/graph.h \
	src/nn/head.c \
	src/nn/kernels.c \
	src/nn/layers.c \
	src/nn/model.c src/nn/model.h src/nn/model_private.h \
	src/nn/model_resnet.c \
	src/nn/model_transformer.c \
	src/nn/muon.c \
	src/nn/optim.c src/nn/optim.h src/nn/optim_private.h \
	src/nn/parameters.c \
	src/nn/partition.c src/nn/partition.h \
	src/nn/patches.c \
	src/nn/rate.c src/nn/rate.h \
	src/nn/resblock.c \
	src/nn/residual.c \
	src/nn/revblock.c \
	src/nn/rotation.c \
	src/nn/sequence_head.c \
	src/nn/shuffle.c \
	src/nn/stem.c \
	src/nn/tensors.c src/nn/tensors.h \
	src/nn/units.c
