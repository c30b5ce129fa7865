# SPDX-License-Identifier: Apache-2.0
# src/base: status, log, memory, random streams, config, output helpers. Includes nothing of ours but itself.
libpetra_a_SOURCES += \
	src/base/archive.c src/base/archive.h \
	src/base/augmentation.h \
	src/base/account.c src/base/account.h \
	src/base/clock.c src/base/clock.h \
	src/base/config.c src/base/config.h \
	src/base/config_base.c \
	src/base/config_compare.c \
	src/base/config_document.c src/base/config_document.h \
	src/base/config_keys.c src/base/config_keys.h \
	src/base/config_nearest.c \
	src/base/config_print.c \
	src/base/config_value.c src/base/config_value.h \
	src/base/crew.c src/base/crew.h \
	src/base/grid.c src/base/grid.h src/base/grid_parse.c src/base/grid_private.h \
	src/base/guard.c src/base/guard.h \
	src/base/hdf5.c src/base/hdf5.h \
	src/base/interval.c src/base/interval.h \
	src/base/json.c src/base/json.h \
	src/base/kernel.h \
	src/base/lane.c src/base/lane.h \
	src/base/last_words.c src/base/last_words.h \
	src/base/link_presets.c src/base/link_presets.h \
	src/base/log.c src/base/log.h \
	src/base/mem.c src/base/mem.h \
	src/base/nearest.c src/base/nearest.h \
	src/base/optimiser.c src/base/optimiser.h \
	src/base/text.c src/base/text.h \
	src/base/progress.c src/base/progress.h \
	src/base/rng.c src/base/rng.h \
	src/base/samples.c src/base/samples.h \
	src/base/seal.c src/base/seal.h \
	src/base/simplex.c src/base/simplex.h \
	src/base/status.c src/base/status.h \
	src/base/stop.c src/base/stop.h \
	src/base/table.c src/base/table.h \
	src/base/threads.c src/base/threads.h \
	src/base/utf8.c src/base/utf8.h \
	src/base/watchdog.c src/base/watchdog.h
