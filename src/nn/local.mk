# SPDX-License-Identifier: Apache-2.0
# src/nn: networks as tables, their blocks, optimiser, learning rate, partition.
libpetra_a_SOURCES += \
	src/nn/block.c src/nn/block.h \
	src/nn/block_attention.c \
	src/nn/block_downsample.c \
	src/nn/block_embedding.c \
	src/nn/block_head.c \
	src/nn/block_mlp.c \
	src/nn/block_patches.c \
	src/nn/block_residual.c \
	src/nn/block_resnet.c \
	src/nn/block_reversible.c \
	src/nn/block_sequence_head.c \
	src/nn/block_stem.c \
	src/nn/block_work.c \
	src/nn/blocks.h \
	src/nn/layers.c \
	src/nn/learning_rate.c \
	src/nn/model.c src/nn/model.h \
	src/nn/model_resnet.c \
	src/nn/model_transformer.c \
	src/nn/muon.c \
	src/nn/optim.c src/nn/optim.h \
	src/nn/parameters.c \
	src/nn/partition.c \
	src/nn/rotation.c \
	src/nn/units.c
EXTRA_DIST += src/nn/README.md
