# SPDX-License-Identifier: Apache-2.0
# src/schedule: actions, programs (the orders of actions), methods.
libpetra_a_SOURCES += \
	src/schedule/action.c src/schedule/action.h \
	src/schedule/arrival.h \
	src/schedule/check.c \
	src/schedule/examine.c \
	src/schedule/executor.h \
	src/schedule/method.c src/schedule/method.h \
	src/schedule/mitigation.c \
	src/schedule/order_search.c \
	src/schedule/program.c src/schedule/program.h \
	src/schedule/program_order.c src/schedule/program_order.h \
	src/schedule/program_petra_lockstep.c \
	src/schedule/programs_loop.c \
	src/schedule/programs_single.c \
	src/schedule/programs_v.c \
	src/schedule/schedule.c src/schedule/schedule.h \
	src/schedule/torch_csv.c
EXTRA_DIST += src/schedule/README.md
