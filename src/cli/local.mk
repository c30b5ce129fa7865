# src/cli: main and one file per subcommand.
bin_PROGRAMS += petra
petra_SOURCES = \
	src/cli/cluster.c src/cli/cluster.h \
	src/cli/cluster_plan.c src/cli/cluster_plan.h \
	src/cli/command.h \
	src/cli/data.c src/cli/data.h \
	src/cli/data_convert.c \
	src/cli/data_records.c \
	src/cli/data_verify.c \
	src/cli/epoch_json.c src/cli/epoch_json.h \
	src/cli/evaluate.c \
	src/cli/footprint.c src/cli/footprint.h \
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
	src/cli/profile.c src/cli/profile.h \
	src/cli/profile_measure.c \
	src/cli/profile_report.c \
	src/cli/profile_weights.c \
	src/cli/schedule.c \
	src/cli/schedule_file.c src/cli/schedule_file.h \
	src/cli/checkpoints.c src/cli/checkpoints.h \
	src/cli/recorder.c src/cli/recorder.h \
	src/cli/run_folder.c src/cli/run_folder.h \
	src/cli/setup.c src/cli/setup.h \
	src/cli/setup_profile.c \
	src/cli/setup_roofline.c \
	src/cli/setup_schedule.c \
	src/cli/setup_summary.c \
	src/cli/setup_weights.c \
	src/cli/simulate.c src/cli/simulate.h \
	src/cli/simulate_output.c \
	src/cli/simulate_report.c \
	src/cli/sweep.c src/cli/sweep.h \
	src/cli/sweep_cell.c src/cli/sweep_child.c src/cli/sweep_plan.c src/cli/sweep_run.c \
	src/cli/sweep_slurm.c src/cli/sweep_summary.c src/cli/sweep_table.c \
	src/cli/train.c \
	src/cli/training_log.c src/cli/training_log.h
petra_LDADD = $(PETRA_LDADD)
