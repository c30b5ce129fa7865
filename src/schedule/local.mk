# SPDX-License-Identifier: Apache-2.0
# src/schedule: actions, programs (one file each), methods.
libpetra_a_SOURCES += \
	src/schedule/action.c src/schedule/action.h \
	src/schedule/arrival.h \
	src/schedule/check.c \
	src/schedule/examine.c \
	src/schedule/executor.h \
	src/schedule/flush_writer.c src/schedule/flush_writer.h \
	src/schedule/method.c src/schedule/method.h \
	src/schedule/mitigation.c \
	src/schedule/observer.h \
	src/schedule/order_search.c src/schedule/order_search.h \
	src/schedule/program.c src/schedule/program.h \
	src/schedule/program_1f1b.c \
	src/schedule/program_1f1b_async.c \
	src/schedule/program_arrival.c \
	src/schedule/program_dualpipe_v.c \
	src/schedule/program_forward_locked.c \
	src/schedule/program_gpipe.c \
	src/schedule/program_interleaved.c \
	src/schedule/program_interleaved_zb.c \
	src/schedule/program_local.c \
	src/schedule/program_petra_lockstep.c \
	src/schedule/program_order.c src/schedule/program_order.h \
	src/schedule/program_sequential.c \
	src/schedule/program_v_half.c \
	src/schedule/program_zb_h1.c \
	src/schedule/program_zb_h2.c \
	src/schedule/program_zb_v.c \
	src/schedule/schedule.c src/schedule/schedule.h \
	src/schedule/torch_csv.c \
	src/schedule/version.c src/schedule/version.h \
	src/schedule/worker.h
EXTRA_DIST += src/schedule/README.md
