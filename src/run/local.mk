# SPDX-License-Identifier: Apache-2.0
# src/run: one assembly of a run from a config: plan, network on a backend, run; what records it.
libpetra_a_SOURCES += \
	src/run/action_log.c src/run/action_log.h \
	src/run/actions_gather.c src/run/actions_gather.h \
	src/run/checkpoint_files.c src/run/checkpoint_files.h \
	src/run/checkpoint_state.c src/run/checkpoint_state.h \
	src/run/checkpoints.c src/run/checkpoints.h \
	src/run/backend_memory.c src/run/backend_memory.h \
	src/run/best.c src/run/best.h \
	src/run/best_ranks.c src/run/best_ranks.h \
	src/run/cluster.c src/run/cluster.h \
	src/run/describe.c src/run/describe.h \
	src/run/digest.c src/run/digest.h \
	src/run/estimate.c src/run/estimate.h \
	src/run/execution.c src/run/execution.h src/run/execution_private.h \
	src/run/execution_checkpoint.c \
	src/run/execution_gather.c \
	src/run/fit.c src/run/fit.h \
	src/run/fit_read.c src/run/fit_read.h \
	src/run/folder.c src/run/folder.h \
	src/run/folder_held.c \
	src/run/footprint.c src/run/footprint.h \
	src/run/footprint_held.c src/run/footprint_held.h \
	src/run/footprint_pass.c src/run/footprint_pass.h \
	src/run/groups.c src/run/groups.h \
	src/run/header.c src/run/header.h \
	src/run/libraries.c src/run/libraries.h \
	src/run/merge.c src/run/merge.h \
	src/run/network.c src/run/network.h \
	src/run/network_weights.c \
	src/run/overlap.c src/run/overlap.h \
	src/run/pauses.c src/run/pauses.h \
	src/run/pipeline.c src/run/pipeline.h \
	src/run/news.c src/run/news.h \
	src/run/pace.c src/run/pace.h \
	src/run/placed.c src/run/placed.h \
	src/run/placement.c src/run/placement.h \
	src/run/plan.c src/run/plan.h \
	src/run/plan_order.c \
	src/run/plan_profile.c \
	src/run/plan_program.c \
	src/run/plans_file.c src/run/plans_file.h \
	src/run/probe_log.c src/run/probe_log.h \
	src/run/profile.h \
	src/run/profile_alone.c \
	src/run/profile_copies.c src/run/profile_copies.h \
	src/run/profile_fit.c src/run/profile_fit.h \
	src/run/profile_link.c \
	src/run/profile_measure.c \
	src/run/profile_pipeline.c src/run/profile_pipeline.h \
	src/run/profile_spread.c \
	src/run/rank_links.c src/run/rank_links.h \
	src/run/rank_times.c src/run/rank_times.h \
	src/run/ranks.c src/run/ranks.h \
	src/run/rehearsal.c src/run/rehearsal.h \
	src/run/replica_exchange.c src/run/replica_exchange.h \
	src/run/replicas.c src/run/replicas.h \
	src/run/run.c src/run/run.h src/run/run_private.h \
	src/run/run_files.c \
	src/run/run_observers.c \
	src/run/schedule_file.c src/run/schedule_file.h \
	src/run/simulation.c src/run/simulation.h \
	src/run/trace_observer.c src/run/trace_observer.h \
	src/run/training_log.c src/run/training_log.h \
	src/run/worker_ranks.c src/run/worker_ranks.h \
	src/run/worker_sleep.c src/run/worker_sleep.h
