# SPDX-License-Identifier: Apache-2.0
# src/cli: the command line: main and one file per subcommand.
bin_PROGRAMS += petra
petra_SOURCES = \
	src/cli/command.h \
	src/cli/command_data.c \
	src/cli/command_data_verify.c \
	src/cli/command_evaluate.c \
	src/cli/command_info.c \
	src/cli/command_init.c \
	src/cli/command_inspect.c \
	src/cli/command_methods.c \
	src/cli/command_plan.c \
	src/cli/command_profile.c \
	src/cli/command_schedule.c \
	src/cli/command_schedule_json.c \
	src/cli/command_simulate.c \
	src/cli/command_train.c \
	src/cli/data.h \
	src/cli/help.c \
	src/cli/main.c \
	src/cli/python.c \
	src/cli/requests.c \
	src/cli/rows.c \
	src/cli/rows.h
petra_LDADD = $(PETRA_LDADD)
# Where an installed petra finds its subcommands in Python, and the Python that configure found for them.
src/cli/python.$(OBJEXT): AM_CPPFLAGS += -DPETRA_ANALYSIS_DIR='"$(analysisdir)"' -DPETRA_PYTHON='"$(PETRA_PYTHON)"'
EXTRA_DIST += src/cli/README.md
