# SPDX-License-Identifier: Apache-2.0
# src/plan: what a config asks for: network, partition, method, order, modelled cluster.
libpetra_a_SOURCES += \
	src/plan/describe.c src/plan/describe.h \
	src/plan/network.c src/plan/network.h \
	src/plan/network_weights.c \
	src/plan/pipeline.c src/plan/pipeline.h \
	src/plan/placement.c src/plan/placement.h \
	src/plan/plan.c src/plan/plan.h \
	src/plan/plan_order.c \
	src/plan/plan_profile.c \
	src/plan/plan_program.c \
	src/plan/schedule_file.c src/plan/schedule_file.h \
	src/plan/thread_groups.c src/plan/thread_groups.h \
	src/plan/virtual_cluster.c src/plan/virtual_cluster.h
EXTRA_DIST += src/plan/README.md
