# SPDX-License-Identifier: Apache-2.0
# src/setup: from a config to network, partition, method, order, modelled cluster; no tensor.
libpetra_a_SOURCES += \
	src/setup/describe.c src/setup/describe.h \
	src/setup/placement.c src/setup/placement.h \
	src/setup/plan.c src/setup/plan.h \
	src/setup/plan_profile.c \
	src/setup/plan_program.c \
	src/setup/rank_simulation.c src/setup/rank_simulation.h \
	src/setup/schedule_file.c \
	src/setup/virtual_cluster.c src/setup/virtual_cluster.h
EXTRA_DIST += src/setup/README.md
