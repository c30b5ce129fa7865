# src/cli: main and one file per subcommand.
bin_PROGRAMS += petra
petra_SOURCES = \
	src/cli/cluster.c src/cli/cluster.h \
	src/cli/command.h \
	src/cli/epoch_json.c src/cli/epoch_json.h \
	src/cli/evaluate.c \
	src/cli/gantt.c src/cli/gantt.h \
	src/cli/info.c \
	src/cli/init.c \
	src/cli/inspect.c \
	src/cli/inspect_run.c src/cli/inspect_run.h \
	src/cli/libraries.c src/cli/libraries.h \
	src/cli/main.c \
	src/cli/memory.c src/cli/memory.h \
	src/cli/methods.c \
	src/cli/probe_log.c src/cli/probe_log.h \
	src/cli/schedule.c \
	src/cli/setup.c src/cli/setup.h \
	src/cli/setup_roofline.c \
	src/cli/setup_summary.c \
	src/cli/setup_weights.c \
	src/cli/simulate.c src/cli/simulate.h \
	src/cli/simulate_report.c \
	src/cli/train.c \
	src/cli/training_log.c src/cli/training_log.h
petra_LDADD = $(PETRA_LDADD)
