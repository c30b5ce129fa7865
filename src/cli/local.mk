# SPDX-License-Identifier: Apache-2.0
# src/cli: the command line: main and one file per subcommand.
bin_PROGRAMS += petra
petra_SOURCES = \
	src/cli/command.h \
	src/cli/data.c src/cli/data.h \
	src/cli/data_convert.c \
	src/cli/data_verify.c \
	src/cli/evaluate.c \
	src/cli/help.c \
	src/cli/info.c \
	src/cli/init.c \
	src/cli/inspect.c \
	src/cli/inspect_config.c \
	src/cli/main.c \
	src/cli/methods.c \
	src/cli/plan.c \
	src/cli/profile.c \
	src/cli/python.c \
	src/cli/requests.c src/cli/requests.h \
	src/cli/rows.c src/cli/rows.h \
	src/cli/schedule.c src/cli/schedule_json.c \
	src/cli/simulate.c \
	src/cli/train.c
petra_LDADD = $(PETRA_LDADD)
# Where an installed petra finds its subcommands in Python, and the Python that configure found for them.
src/cli/python.$(OBJEXT): AM_CPPFLAGS += -DPETRA_ANALYSIS_DIR='"$(analysisdir)"' -DPETRA_PYTHON='"$(PETRA_PYTHON)"'
EXTRA_DIST += src/cli/README.md
