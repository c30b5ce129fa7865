# SPDX-License-Identifier: Apache-2.0
# src/cli: the command line: main and one file per subcommand.
bin_PROGRAMS += petra
petra_SOURCES = \
	src/cli/command.h \
	src/cli/compare.c \
	src/cli/compare_results.c src/cli/compare_results.h \
	src/cli/completion.c \
	src/cli/data.c src/cli/data.h \
	src/cli/data_convert.c \
	src/cli/data_records.c \
	src/cli/data_verify.c src/cli/data_verify.h src/cli/data_verify_images.c src/cli/data_verify_tokens.c \
	src/cli/epoch_json.c src/cli/epoch_json.h \
	src/cli/fit_print.c src/cli/fit_print.h \
	src/cli/evaluate.c \
	src/cli/export.c \
	src/cli/gantt.c src/cli/gantt.h \
	src/cli/help.c src/cli/help.h \
	src/cli/info.c \
	src/cli/init.c \
	src/cli/inspect.c src/cli/inspect.h \
	src/cli/inspect_config.c \
	src/cli/inspect_run.c \
	src/cli/list.c \
	src/cli/main.c \
	src/cli/memory.c src/cli/memory.h \
	src/cli/pace.c src/cli/pace.h \
	src/cli/methods.c \
	src/cli/presets.c src/cli/presets.h \
	src/cli/profile.c \
	src/cli/report.c src/cli/script.c \
	src/cli/run_facts.c src/cli/run_facts.h \
	src/cli/schedule.c \
	src/cli/simulate.c \
	src/cli/sweep.c \
	src/cli/train.c
petra_LDADD = $(PETRA_LDADD)
# Where an installed petra finds the scripts of petra report and petra export, and the Python that configure found for them.
src/cli/script.$(OBJEXT): AM_CPPFLAGS += -DPETRA_ANALYSIS_DIR='"$(analysisdir)"' -DPETRA_PYTHON='"$(PETRA_PYTHON)"'
