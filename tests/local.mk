# SPDX-License-Identifier: Apache-2.0
# tests: Check programs. Each forks nothing: OpenMP regions in a forked child of a process that had one hang.
# Threads that wait sleep: spinning beside other programs would take their time (a hundred times slower at small layers).
AM_TESTS_ENVIRONMENT = CK_FORK=no; export CK_FORK; OMP_WAIT_POLICY=passive; export OMP_WAIT_POLICY; srcdir='$(srcdir)'; export srcdir;
LOG_COMPILER =
TESTS_LDADD = $(PETRA_LDADD) $(CHECK_LIBS)
TESTS_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) -I$(top_srcdir)/tests

check_PROGRAMS += tests/test_base
TESTS += tests/test_base
tests_test_base_SOURCES = tests/test_base.c tests/harness.h
tests_test_base_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_base_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_config
TESTS += tests/test_config
tests_test_config_SOURCES = tests/test_config.c tests/config_cases.h tests/harness.h
tests_test_config_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_config_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_output
TESTS += tests/test_output
tests_test_output_SOURCES = tests/test_output.c tests/harness.h
tests_test_output_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_output_LDADD = $(TESTS_LDADD)
# src/data
check_PROGRAMS += tests/dump_shapes
tests_dump_shapes_SOURCES = tests/dump_shapes.c
tests_dump_shapes_LDADD = $(PETRA_LDADD)
EXTRA_DIST += tests/reference/shapes_hardness.py

check_PROGRAMS += tests/test_data
TESTS += tests/test_data
tests_test_data_SOURCES = tests/test_data.c tests/harness.h
tests_test_data_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_data_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_tokens
TESTS += tests/test_tokens
tests_test_tokens_SOURCES = tests/test_tokens.c tests/harness.h
tests_test_tokens_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_tokens_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_loader
TESTS += tests/test_loader
tests_test_loader_SOURCES = tests/test_loader.c tests/harness.h
tests_test_loader_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_loader_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_cpu
TESTS += tests/test_cpu tests/test_cpu_avx2
EXTRA_DIST += tests/test_cpu_avx2
tests_test_cpu_SOURCES = tests/test_cpu.c tests/cpu_tensors.h tests/harness.h
tests_test_cpu_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cpu_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_cpu_bf16
TESTS += tests/test_cpu_bf16
tests_test_cpu_bf16_SOURCES = tests/test_cpu_bf16.c tests/cpu_tensors.h tests/harness.h
tests_test_cpu_bf16_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cpu_bf16_LDADD = $(TESTS_LDADD)
# src/wire
check_PROGRAMS += tests/test_carrier
TESTS += tests/test_carrier
tests_test_carrier_SOURCES = tests/test_carrier.c tests/wire_threads.c tests/wire_threads.h tests/harness.h
tests_test_carrier_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_carrier_LDADD = $(TESTS_LDADD)

# Scripts: the layers, the documents, the analysis scripts.
TESTS += tests/check_includes tests/check_format tests/check_spdx tests/check_docs tests/check_site tests/check_config_doc tests/check_log_doc tests/check_analysis tests/check_figures tests/check_grids tests/check_completion tests/check_mpi_wrapper
EXTRA_DIST += .clang-format tests/check_includes tests/check_format tests/check_spdx tests/check_docs tests/check_site tests/check_config_doc tests/check_log_doc tests/check_analysis tests/check_figures tests/check_grids tests/check_completion tests/check_mpi_wrapper tests/lsan.supp
check_PROGRAMS += tests/test_seal
TESTS += tests/test_seal tests/cli/damage.py tests/cli/no_memory.py
tests_test_seal_SOURCES = tests/test_seal.c tests/harness.h
tests_test_seal_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_seal_LDADD = $(TESTS_LDADD)
EXTRA_DIST += tests/cli/damage.py tests/cli/no_memory.py tests/refuse_memory.c tests/slow_listing.c
check_PROGRAMS += tests/test_runlog tests/test_weights
TESTS += tests/test_runlog tests/test_weights tests/read_while_running.sh
tests_test_runlog_SOURCES = tests/test_runlog.c tests/io_child.h tests/harness.h
tests_test_runlog_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_runlog_LDADD = $(TESTS_LDADD)
tests_test_weights_SOURCES = tests/test_weights.c tests/io_child.h tests/harness.h
tests_test_weights_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_weights_LDADD = $(TESTS_LDADD)
EXTRA_DIST += tests/read_while_running.sh tests/read_while_running.py
# The golden training runs: their data, and the scripts that made them.
check_PROGRAMS += tests/test_golden_data
TESTS += tests/test_golden_data
tests_test_golden_data_SOURCES = tests/test_golden_data.c tests/golden_data.c tests/golden_data.h tests/harness.h
tests_test_golden_data_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_golden_data_LDADD = $(TESTS_LDADD)

EXTRA_DIST += \
  tests/golden/init-revgpt.h5 tests/golden/init-gpt.h5 tests/golden/init-revvit.h5 tests/golden/init-vit.h5 \
  tests/golden/petra-revgpt-k1.h5 tests/golden/petra-revgpt-k3.h5 tests/golden/delayed-revgpt-k1.h5 tests/golden/dsp-revgpt-k1.h5 \
  tests/golden/delayed-reversible-revgpt-k1.h5 tests/golden/approximate-input-revgpt-k1.h5 tests/golden/backprop-revgpt-k1.h5 \
  tests/golden/dsp-gpt-k1.h5 tests/golden/delayed-gpt-k3.h5 tests/golden/ddg-gpt-k1.h5 tests/golden/fr-gpt-k1.h5 \
  tests/golden/backprop-gpt-k1.h5 tests/golden/petra-revvit-k1.h5 tests/golden/dsp-vit-k1.h5 tests/reference/transformers.py \
  tests/golden/init-revnet18.h5 tests/golden/init-revnet50.h5 tests/golden/init-resnet18.h5 tests/golden/init-resnet50.h5 \
  tests/golden/petra-revnet18-k1.h5 tests/golden/petra-revnet18-k3.h5 \
  tests/golden/init-revnet18-narrow.h5 tests/golden/petra-revnet18-narrow-late-k1.h5 tests/golden/petra-revnet18-narrow-late-k3.h5 \
  tests/golden/petra-revnet18-narrow-one-late-k1.h5 tests/golden/approximate-input-revnet18-narrow-one-late-k3.h5 \
  tests/golden/init-revnet18-invertible.h5 tests/golden/petra-revnet18-invertible-k1.h5 \
  tests/golden/petra-revnet50-k1.h5 tests/golden/petra-revnet50-k3.h5 \
  tests/golden/backprop-revnet18-k1.h5 tests/golden/backprop-revnet18-k3.h5 tests/golden/backprop-revnet50-k3.h5 \
  tests/golden/delayed-revnet18-k1.h5 tests/golden/delayed-revnet18-k3.h5 tests/golden/dsp-revnet18-k1.h5 tests/golden/dsp-revnet18-k3.h5 \
  tests/golden/delayed-reversible-revnet18-k1.h5 tests/golden/delayed-reversible-revnet18-k3.h5 tests/golden/approximate-input-revnet18-k1.h5 tests/golden/approximate-input-revnet18-k3.h5 \
  tests/golden/backprop-resnet18-k1.h5 tests/golden/backprop-resnet50-k1.h5 \
  tests/golden/ddg-revnet18-k1.h5 tests/golden/ddg-revnet18-k3.h5 tests/golden/fr-revnet18-k1.h5 tests/golden/fr-revnet18-k3.h5 \
  tests/reference/README.md tests/reference/make_golden tests/reference/make_golden.py tests/reference/make_probes.py tests/golden/probe-revnet18.txt tests/reference/make_recalibrated.py tests/golden/recalibrated.txt tests/reference/make_optimisers.py tests/golden/optimisers.txt tests/reference/optimisers.py \
  tests/reference/make_transformers.py tests/golden/transformers.txt tests/reference/make_data.py \
  tests/reference/nets.py tests/reference/methods.py tests/reference/store.py tests/reference/run.py \
  tests/reference/compare.py tests/reference/selfcheck.py tests/reference/mitigations.py tests/reference/random_probes.py tests/reference/random_weights.py

# Golden files are remade by this target alone: make regen-golden PYTORCH_INTERPRETER=PATH (a Python with PyTorch and h5py).
PYTORCH_INTERPRETER = python3
.PHONY: regen-golden regen-golden-training
regen-golden: regen-golden-training
regen-golden-training:
	$(srcdir)/tests/reference/make_golden $(PYTORCH_INTERPRETER)
	PYTHONDONTWRITEBYTECODE=1 $(PYTORCH_INTERPRETER) $(srcdir)/tests/reference/make_probes.py $(srcdir)/tests/golden
	PYTHONDONTWRITEBYTECODE=1 $(PYTORCH_INTERPRETER) $(srcdir)/tests/reference/make_recalibrated.py $(srcdir)/tests/golden
	PYTHONDONTWRITEBYTECODE=1 $(PYTORCH_INTERPRETER) $(srcdir)/tests/reference/make_optimisers.py $(srcdir)/tests/golden
	PYTHONDONTWRITEBYTECODE=1 $(PYTORCH_INTERPRETER) $(srcdir)/tests/reference/make_transformers.py $(srcdir)/tests/golden
# The program as its user meets it. Python scripts: TEST_EXTENSIONS gives them their interpreter.
TEST_EXTENSIONS = .py
PY_LOG_COMPILER = $(srcdir)/tests/cli/python
TESTS += tests/cli/bad_input.py tests/cli/examples.py tests/cli/usage.py tests/cli/reproducible.py tests/cli/schedule_file.py tests/cli/sweep.py tests/cli/resume.py tests/cli/overwrite.py tests/cli/control_characters.py tests/cli/execute.py tests/cli/replicas.py
EXTRA_DIST += tests/cli/python tests/cli/program.py tests/cli/bad_input.py tests/cli/examples.py tests/cli/usage.py tests/cli/reproducible.py \
  tests/cli/schedule_file.py tests/cli/sweep.py tests/cli/resume.py tests/cli/overwrite.py tests/cli/control_characters.py tests/cli/execute.py tests/cli/replicas.py
TESTS += tests/cli/probe.py tests/cli/precision.py tests/cli/random_orders.py tests/cli/random_runs.py tests/cli/random_times.py tests/cli/runs.py tests/cli/report.py
EXTRA_DIST += tests/cli/probe.py tests/cli/precision.py tests/cli/orders.py tests/cli/random_orders.py tests/cli/random_runs.py tests/cli/random_times.py tests/cli/runs.py tests/cli/report.py tests/cli/walk_report.js
# The pages: what they show is what the commands print.
TESTS += tests/cli/pages.py
EXTRA_DIST += tests/cli/pages.py tests/cli/console.py
# src/schedule, sim, src/nn, src/stage, src/exec
check_PROGRAMS += tests/test_engine tests/test_schedule tests/test_executor tests/test_stage tests/test_no_memory \
  tests/test_model tests/test_partition tests/test_blocks tests/test_optim
TESTS += tests/test_engine tests/test_schedule tests/test_executor tests/test_stage tests/test_no_memory \
  tests/test_model tests/test_partition tests/test_blocks tests/test_optim
tests_test_engine_SOURCES = tests/test_engine.c tests/harness.h
tests_test_engine_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_engine_LDADD = $(TESTS_LDADD)
tests_test_schedule_SOURCES = tests/test_schedule.c tests/harness.h
tests_test_schedule_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_schedule_LDADD = $(TESTS_LDADD)
tests_test_executor_SOURCES = tests/test_executor.c tests/training_rig.c tests/training_rig.h tests/sink.h tests/harness.h
tests_test_executor_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_executor_LDADD = $(TESTS_LDADD)
tests_test_model_SOURCES = tests/test_model.c tests/networks.h tests/harness.h
tests_test_model_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_model_LDADD = $(TESTS_LDADD)
tests_test_partition_SOURCES = tests/test_partition.c tests/networks.h tests/harness.h
tests_test_partition_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_partition_LDADD = $(TESTS_LDADD)
tests_test_blocks_SOURCES = tests/test_blocks.c tests/networks.h tests/harness.h
tests_test_blocks_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_blocks_LDADD = $(TESTS_LDADD)
tests_test_optim_SOURCES = tests/test_optim.c tests/networks.h tests/harness.h
tests_test_optim_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_optim_LDADD = $(TESTS_LDADD)
tests_test_stage_SOURCES = tests/test_stage.c tests/training_rig.c tests/training_rig.h tests/sink.h tests/harness.h
tests_test_stage_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_stage_LDADD = $(TESTS_LDADD)
tests_test_no_memory_SOURCES = tests/test_no_memory.c tests/training_rig.c tests/training_rig.h tests/sink.h tests/harness.h
tests_test_no_memory_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_no_memory_LDADD = $(TESTS_LDADD)
EXTRA_DIST += tests/golden/schedule-lockstep.txt tests/golden/schedule-sequential.txt tests/golden/schedule-gpipe.txt \
  tests/golden/schedule-1f1b.txt tests/golden/schedule-1f1b-async.txt tests/golden/schedule-interleaved.txt \
  tests/golden/schedule-zb-h1.txt tests/golden/schedule-forward-locked.txt
.PHONY: regen-golden-schedule
regen-golden: regen-golden-schedule
regen-golden-schedule: tests/test_schedule
	tests/test_schedule --regen $(srcdir)/tests/golden
# Whole training runs: tests/training.c.
TRAINING_SOURCES = tests/training.c tests/training.h tests/tolerances.h tests/tolerances.def tests/golden_data.c \
  tests/golden_data.h tests/harness.h tests/sink.h
check_PROGRAMS += tests/test_golden
TESTS += tests/test_golden
tests_test_golden_SOURCES = tests/test_golden.c tests/golden_file.c tests/golden_file.h $(TRAINING_SOURCES)
tests_test_golden_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_golden_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_precision
TESTS += tests/test_precision
tests_test_precision_SOURCES = tests/test_precision.c $(TRAINING_SOURCES)
tests_test_precision_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_precision_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_identities
TESTS += tests/test_identities
tests_test_identities_SOURCES = tests/test_identities.c $(TRAINING_SOURCES)
tests_test_identities_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_identities_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_methods
TESTS += tests/test_methods
tests_test_methods_SOURCES = tests/test_methods.c $(TRAINING_SOURCES)
tests_test_methods_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_methods_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_arrival
TESTS += tests/test_arrival
tests_test_arrival_SOURCES = tests/test_arrival.c tests/wire_threads.c tests/wire_threads.h $(TRAINING_SOURCES)
tests_test_arrival_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_arrival_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_replicas
TESTS += tests/test_replicas
tests_test_replicas_SOURCES = tests/test_replicas.c $(TRAINING_SOURCES)
tests_test_replicas_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_replicas_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_rank_times
TESTS += tests/test_rank_times
tests_test_rank_times_SOURCES = tests/test_rank_times.c tests/harness.h tests/tolerances.h
tests_test_rank_times_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_rank_times_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_training_log
TESTS += tests/test_training_log
tests_test_training_log_SOURCES = tests/test_training_log.c tests/harness.h tests/tolerances.h
tests_test_training_log_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_training_log_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_groups
TESTS += tests/test_groups
tests_test_groups_SOURCES = tests/test_groups.c $(TRAINING_SOURCES)
tests_test_groups_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_groups_LDADD = $(TESTS_LDADD)

check_PROGRAMS += tests/test_transport
TESTS += tests/test_transport
tests_test_transport_SOURCES = tests/test_transport.c $(TRAINING_SOURCES)
tests_test_transport_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_transport_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_probe tests/test_probe_references
TESTS += tests/test_probe tests/test_probe_references
PROBE_RIG_SOURCES = tests/probe_rig.c tests/probe_rig.h $(TRAINING_SOURCES)
tests_test_probe_SOURCES = tests/test_probe.c $(PROBE_RIG_SOURCES)
tests_test_probe_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_probe_LDADD = $(TESTS_LDADD)
tests_test_probe_references_SOURCES = tests/test_probe_references.c $(PROBE_RIG_SOURCES)
tests_test_probe_references_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_probe_references_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_invertible
TESTS += tests/test_invertible
tests_test_invertible_SOURCES = tests/test_invertible.c $(TRAINING_SOURCES)
tests_test_invertible_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_invertible_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_stage_rules
TESTS += tests/test_stage_rules
tests_test_stage_rules_SOURCES = tests/test_stage_rules.c $(TRAINING_SOURCES)
tests_test_stage_rules_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_stage_rules_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_mitigation
TESTS += tests/test_mitigation
tests_test_mitigation_SOURCES = tests/test_mitigation.c tests/mitigation.h $(TRAINING_SOURCES)
tests_test_mitigation_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_mitigation_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_mitigation_runs
TESTS += tests/test_mitigation_runs
tests_test_mitigation_runs_SOURCES = tests/test_mitigation_runs.c tests/mitigation.h $(TRAINING_SOURCES)
tests_test_mitigation_runs_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_mitigation_runs_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_gradients
TESTS += tests/test_gradients
tests_test_gradients_SOURCES = tests/test_gradients.c $(TRAINING_SOURCES)
tests_test_gradients_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_gradients_LDADD = $(TESTS_LDADD)
# The operations of the backends: one table of cases.
check_PROGRAMS += tests/test_backend
TESTS += tests/test_backend tests/test_backend_avx2
EXTRA_DIST += tests/test_backend_avx2
tests_test_backend_SOURCES = tests/test_backend.c tests/cases.c tests/cases.h tests/case_tolerances.h tests/cases_basic.c tests/cases_shuffle.c \
  tests/cases_conv.c tests/cases_norm.c tests/cases_pool.c tests/cases_head.c tests/cases_optim.c tests/cases_sequence.c tests/naive.c tests/naive.h tests/harness.h
tests_test_backend_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_backend_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_op_gradients tests/test_sequence tests/test_tensor
TESTS += tests/test_op_gradients tests/test_sequence tests/test_tensor
tests_test_sequence_SOURCES = tests/test_sequence.c tests/op_gradients.h tests/cases.h tests/case_tolerances.h tests/harness.h
tests_test_sequence_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_sequence_LDADD = $(TESTS_LDADD)
tests_test_op_gradients_SOURCES = tests/test_op_gradients.c tests/op_gradients.h tests/cases.h tests/case_tolerances.h tests/harness.h
tests_test_op_gradients_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_op_gradients_LDADD = $(TESTS_LDADD)
tests_test_tensor_SOURCES = tests/test_tensor.c tests/harness.h
tests_test_tensor_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_tensor_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_ops
TESTS += tests/test_ops
tests_test_ops_SOURCES = tests/test_ops.c tests/harness.h
tests_test_ops_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_ops_LDADD = $(TESTS_LDADD)
# The programs' closed forms; schedules in text form.
check_PROGRAMS += tests/test_programs
TESTS += tests/test_programs
tests_test_programs_SOURCES = tests/test_programs.c tests/program_run.h tests/sink.h tests/harness.h
tests_test_programs_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_programs_LDADD = $(TESTS_LDADD)
# sim: links against an independent simulator, random durations, arrival; petra simulate
check_PROGRAMS += tests/pipeline_case tests/test_link tests/test_simulate
TESTS += tests/test_link tests/test_simulate tests/reference/pipeline_simpy.py tests/cli/simulate.py tests/cli/simulate_results.py tests/cli/host.py tests/cli/fit.py
tests_pipeline_case_SOURCES = tests/pipeline_case.c
tests_pipeline_case_LDADD = $(PETRA_LDADD)
tests_test_link_SOURCES = tests/test_link.c tests/harness.h
tests_test_link_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_link_LDADD = $(TESTS_LDADD)
tests_test_simulate_SOURCES = tests/test_simulate.c tests/harness.h
tests_test_simulate_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_simulate_LDADD = $(TESTS_LDADD)
EXTRA_DIST += tests/reference/pipeline_simpy.py tests/golden/pipelines.txt tests/cli/simulate.py tests/cli/simulate_results.py tests/cli/host.py tests/cli/fit.py
# The least value of a function, which fits stand on.
check_PROGRAMS += tests/test_simplex
TESTS += tests/test_simplex
tests_test_simplex_SOURCES = tests/test_simplex.c tests/harness.h
tests_test_simplex_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_simplex_LDADD = $(TESTS_LDADD)
# sim: the memory ledger and the roofline; petra inspect --memory
check_PROGRAMS += tests/test_ledger
TESTS += tests/test_ledger tests/cli/inspect_memory.py tests/cli/memory.py
EXTRA_DIST += tests/cli/inspect_memory.py tests/cli/memory.py
tests_test_ledger_SOURCES = tests/test_ledger.c tests/networks.h tests/harness.h
tests_test_ledger_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_ledger_LDADD = $(TESTS_LDADD)

# src/config/grid, interval
check_PROGRAMS += tests/test_grid
TESTS += tests/test_grid
tests_test_grid_SOURCES = tests/test_grid.c tests/harness.h
tests_test_grid_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_grid_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_closed_forms
TESTS += tests/test_closed_forms
tests_test_closed_forms_SOURCES = tests/test_closed_forms.c tests/program_run.h tests/sink.h tests/harness.h
tests_test_closed_forms_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_closed_forms_LDADD = $(TESTS_LDADD)
# petra profile and the cost model that takes it
check_PROGRAMS += tests/test_profile
TESTS += tests/test_profile tests/cli/profile.py tests/cli/placement.py tests/cli/rehearsal.py
EXTRA_DIST += tests/cli/profile.py tests/cli/placement.py tests/cli/rehearsal.py
tests_test_profile_SOURCES = tests/test_profile.c tests/harness.h
tests_test_profile_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_profile_LDADD = $(TESTS_LDADD)
# sim: the critical path of a run
check_PROGRAMS += tests/test_critical
TESTS += tests/test_critical
tests_test_critical_SOURCES = tests/test_critical.c tests/harness.h
tests_test_critical_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_critical_LDADD = $(TESTS_LDADD)
check_PROGRAMS += tests/test_samples
TESTS += tests/test_samples
tests_test_samples_SOURCES = tests/test_samples.c tests/harness.h
tests_test_samples_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_samples_LDADD = $(TESTS_LDADD)
# src/data: images of any size, HDF5 files; petra data
check_PROGRAMS += tests/test_images tests/test_data_file tests/dump_batches
TESTS += tests/test_images tests/test_data_file tests/cli/data.py tests/cli/data_images.py tests/cli/data_sample.py tests/cli/get_data.py
tests_test_images_SOURCES = tests/test_images.c tests/harness.h
tests_test_images_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_images_LDADD = $(TESTS_LDADD)
tests_test_data_file_SOURCES = tests/test_data_file.c tests/harness.h
tests_test_data_file_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_data_file_LDADD = $(TESTS_LDADD)
tests_dump_batches_SOURCES = tests/dump_batches.c
tests_dump_batches_LDADD = $(PETRA_LDADD)
EXTRA_DIST += tests/cli/data.py tests/cli/data_images.py tests/cli/data_sample.py tests/cli/get_data.py tests/cli/images.py
# analysis/weights_pytorch.py, model.new_head
check_PROGRAMS += tests/dump_logits
TESTS += tests/cli/weights_torch.py
tests_dump_logits_SOURCES = tests/dump_logits.c
tests_dump_logits_LDADD = $(PETRA_LDADD)
EXTRA_DIST += tests/cli/weights_torch.py tests/reference/torch_logits.py
# src/backend/cuda: the kernels, as C on the host
check_LIBRARIES = tests/libpetra_cuda_host.a
tests_libpetra_cuda_host_a_SOURCES = tests/cuda_host/device.c tests/cuda_host/device.h tests/cuda_host/kernels.c
tests_libpetra_cuda_host_a_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
tests_libpetra_cuda_host_a_CFLAGS = $(AM_CFLAGS) $(UNDEFINED_TRAPS_CFLAGS)
check_PROGRAMS += tests/test_cuda_host tests/test_cuda_kernels tests/test_cuda_norm tests/test_cuda_sequence tests/test_cuda_attention
TESTS += tests/test_cuda_host tests/test_cuda_kernels tests/test_cuda_norm tests/test_cuda_sequence tests/test_cuda_attention
tests_test_cuda_host_SOURCES = tests/test_cuda_host.c tests/cuda_host/launched.c tests/cuda_rig.h tests/harness.h
tests_test_cuda_host_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cuda_host_LDADD = tests/libpetra_cuda_host.a $(TESTS_LDADD)
tests_test_cuda_kernels_SOURCES = tests/test_cuda_kernels.c tests/cuda_host/launched.c tests/cuda_rig.h tests/harness.h
tests_test_cuda_kernels_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cuda_kernels_LDADD = tests/libpetra_cuda_host.a $(TESTS_LDADD)
tests_test_cuda_norm_SOURCES = tests/test_cuda_norm.c tests/cuda_host/launched.c tests/cuda_rig.h tests/harness.h
tests_test_cuda_norm_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cuda_norm_LDADD = tests/libpetra_cuda_host.a $(TESTS_LDADD)
tests_test_cuda_sequence_SOURCES = tests/test_cuda_sequence.c tests/cuda_host/launched.c tests/cuda_rig.h tests/harness.h
tests_test_cuda_sequence_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cuda_sequence_LDADD = tests/libpetra_cuda_host.a $(TESTS_LDADD)
tests_test_cuda_attention_SOURCES = tests/test_cuda_attention.c tests/cuda_host/launched.c tests/cuda_rig.h tests/harness.h
tests_test_cuda_attention_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cuda_attention_LDADD = tests/libpetra_cuda_host.a $(TESTS_LDADD)
# src/backend/cuda on a machine without CUDA: a fake of its runtime and of its libraries
CUDA_FAKE_CPPFLAGS = -I$(top_srcdir)/tests/cuda_host $(AM_CPPFLAGS) -I$(top_srcdir)/tests
check_LIBRARIES += tests/libpetra_cuda_fake.a
tests_libpetra_cuda_fake_a_SOURCES = tests/cuda_host/runtime.c tests/cuda_host/streams.c tests/cuda_host/events.c \
  tests/cuda_host/capture.c tests/cuda_host/graphs.c tests/cuda_host/memory.c tests/cuda_host/convolution_host.c \
  tests/cuda_host/matrix_host.c tests/cuda_host/nccl_host.c tests/cuda_host/runtime.h tests/cuda_host/control.h \
  tests/cuda_host/nccl_control.h tests/cuda_host/arithmetic.h tests/cuda_host/cuda_runtime_api.h tests/cuda_host/nccl.h
tests_libpetra_cuda_fake_a_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
check_PROGRAMS += tests/test_cuda_runtime
TESTS += tests/test_cuda_runtime
tests_test_cuda_runtime_SOURCES = tests/test_cuda_runtime.c tests/test_cuda_runtime_capture.c tests/test_cuda_runtime_libraries.c \
  tests/test_cuda_runtime.h tests/harness.h
tests_test_cuda_runtime_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) $(CHECK_CFLAGS)
tests_test_cuda_runtime_LDADD = tests/libpetra_cuda_fake.a $(TESTS_LDADD)
# The whole backend over the fake, linked before libpetra.a: its registry knows `cuda`.
check_LIBRARIES += tests/libpetra_cuda_backend.a
tests_libpetra_cuda_backend_a_SOURCES = tests/cuda_host/launch.c src/backend/registry.c $(CUDA_BACKEND_FILES) \
  src/backend/cuda/peers.c
tests_libpetra_cuda_backend_a_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) -DPETRA_HAVE_CUDA
# Where cuDNN's headers are: plan*.c over a fake of cuDNN's functions, in place of convolution_host.c.
if HAVE_CUDA
CUDNN_FAKE = tests/libpetra_cudnn_fake.a
check_LIBRARIES += tests/libpetra_cudnn_fake.a
check_PROGRAMS += tests/test_cuda_cudnn
TESTS += tests/test_cuda_cudnn
endif
tests_libpetra_cudnn_fake_a_SOURCES = src/backend/cuda/plan.c src/backend/cuda/plan_graph.c src/backend/cuda/plan_measure.c \
  src/backend/cuda/plan_search.c src/backend/cuda/plan_table.c \
  tests/cuda_host/cudnn_descriptors.c tests/cuda_host/cudnn_checks.c tests/cuda_host/cudnn_engines.c tests/cuda_host/cudnn_execute.c \
  tests/cuda_host/cudnn_fake.h tests/cuda_host/cudnn_control.h
tests_libpetra_cudnn_fake_a_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
CUDA_FAKE_LDADD = tests/libpetra_cuda_backend.a $(CUDNN_FAKE) tests/libpetra_cuda_fake.a tests/libpetra_cuda_host.a \
  tests/libpetra_cuda_backend.a tests/libpetra_cuda_fake.a $(TESTS_LDADD)
tests_test_cuda_cudnn_SOURCES = tests/test_cuda_cudnn.c tests/test_cuda_cudnn_search.c tests/test_cuda_cudnn_measure.c \
  tests/test_cuda_cudnn.h tests/harness.h
tests_test_cuda_cudnn_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) $(CHECK_CFLAGS)
tests_test_cuda_cudnn_LDADD = $(CUDNN_FAKE) $(CUDA_FAKE_LDADD)
check_PROGRAMS += tests/test_cuda_backend
TESTS += tests/test_cuda_backend
tests_test_cuda_backend_SOURCES = $(tests_test_backend_SOURCES)
tests_test_cuda_backend_CPPFLAGS = $(TESTS_CPPFLAGS) -DPETRA_TEST_CUDA
tests_test_cuda_backend_LDADD = $(CUDA_FAKE_LDADD)
check_PROGRAMS += tests/test_cuda_training
TESTS += tests/test_cuda_training
tests_test_cuda_training_SOURCES = tests/test_cuda_training.c $(TRAINING_SOURCES)
tests_test_cuda_training_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) $(CHECK_CFLAGS) -DPETRA_CUDA_FAKE
tests_test_cuda_training_LDADD = $(CUDA_FAKE_LDADD)
check_PROGRAMS += tests/test_cuda_identities
TESTS += tests/test_cuda_identities
tests_test_cuda_identities_SOURCES = tests/test_cuda_identities.c tests/cuda_device.h $(TRAINING_SOURCES)
tests_test_cuda_identities_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) $(CHECK_CFLAGS) -DPETRA_CUDA_FAKE
tests_test_cuda_identities_LDADD = $(CUDA_FAKE_LDADD)
check_PROGRAMS += tests/test_cuda_segments
TESTS += tests/test_cuda_segments
tests_test_cuda_segments_SOURCES = tests/test_cuda_segments.c tests/test_cuda_segments_sequence.c tests/test_cuda_segments.h tests/harness.h
tests_test_cuda_segments_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) $(CHECK_CFLAGS)
tests_test_cuda_segments_LDADD = $(CUDA_FAKE_LDADD)
check_PROGRAMS += tests/test_cuda_peers
TESTS += tests/test_cuda_peers
tests_test_cuda_peers_SOURCES = tests/test_cuda_peers.c tests/harness.h
tests_test_cuda_peers_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) $(CHECK_CFLAGS)
tests_test_cuda_peers_LDADD = $(CUDA_FAKE_LDADD)
# petra as a whole over the fakes, for runs on several processes with a device each
check_PROGRAMS += tests/petra_fake
tests_petra_fake_SOURCES = $(petra_SOURCES) tests/cuda_host/mpi_host.c
tests_petra_fake_LDADD = $(CUDA_FAKE_LDADD)
TESTS += tests/cli/execute_gpu.py tests/cli/plans.py
EXTRA_DIST += tests/cli/execute_gpu.py tests/cli/plans.py
# The benchmark for devices, small: on cpu, and over the fake.
check_PROGRAMS += bench/bench_device_fake
bench_bench_device_fake_SOURCES = $(BENCH_DEVICE_SOURCES)
bench_bench_device_fake_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) -DPETRA_HAVE_CUDA
bench_bench_device_fake_LDADD = $(CUDA_FAKE_LDADD)
TESTS += tests/cli/bench_device.py
EXTRA_DIST += tests/cli/bench_device.py
# What a tick launches, counted over stand-ins that compute nothing: plan*.c's is convolution_host.c, which knows the shapes.
check_PROGRAMS += bench/tick_model
bench_tick_model_SOURCES = bench/tick_model.c bench/tick_count.c bench/tick_count.h bench/device.h bench/device_run.c
bench_tick_model_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
bench_tick_model_LDADD = tests/libpetra_cuda_backend.a tests/libpetra_cuda_fake.a tests/libpetra_cuda_host.a \
  tests/libpetra_cuda_backend.a tests/libpetra_cuda_fake.a $(TESTS_LDADD)
TESTS += tests/cli/tick_model.py
EXTRA_DIST += tests/cli/tick_model.py

# The same on a device; they end with 77 where there is none.
if HAVE_CUDA
check_PROGRAMS += tests/test_device_backend tests/test_device_training tests/test_device_identities tests/test_device_precision
TESTS += tests/test_device_backend tests/test_device_training tests/test_device_identities tests/test_device_precision
endif
tests_test_device_backend_SOURCES = $(tests_test_backend_SOURCES)
tests_test_device_backend_CPPFLAGS = $(TESTS_CPPFLAGS) -DPETRA_TEST_CUDA
tests_test_device_backend_LDADD = $(TESTS_LDADD)
tests_test_device_training_SOURCES = tests/test_cuda_training.c $(TRAINING_SOURCES)
tests_test_device_training_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_device_training_LDADD = $(TESTS_LDADD)
tests_test_device_identities_SOURCES = tests/test_cuda_identities.c $(TRAINING_SOURCES)
tests_test_device_identities_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_device_identities_LDADD = $(TESTS_LDADD)
tests_test_device_precision_SOURCES = $(tests_test_precision_SOURCES)
tests_test_device_precision_CPPFLAGS = $(TESTS_CPPFLAGS) -DPETRA_TEST_CUDA
tests_test_device_precision_LDADD = $(TESTS_LDADD)

# The CUDA build, what petra info tells of CUDA, and the bundle for machines without our libraries.
AM_TESTS_ENVIRONMENT += NVCC='$(NVCC)'; export NVCC;
TESTS += tests/check_spills tests/cli/cuda_info.py tests/cli/bundle.py tests/cli/gpu_kit.py
EXTRA_DIST += tests/check_spills tests/cli/cuda_info.py tests/cli/bundle.py tests/cli/gpu_kit.py
# src/backend/cuda: plans without a GPU. The program is run by a script, which knows a library that is not there.
if HAVE_CUDA
check_PROGRAMS += tests/cuda_plans tests/test_cuda_matrix
TESTS += tests/test_cuda_plans tests/test_cuda_matrix
endif
tests_cuda_plans_SOURCES = tests/cuda_plans.c tests/cuda_host/driver.c tests/harness.h
tests_cuda_plans_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_cuda_plans_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic
tests_cuda_plans_LDADD = $(TESTS_LDADD) $(CUDA_LIBS)
tests_test_cuda_matrix_SOURCES = tests/test_cuda_matrix.c tests/harness.h
tests_test_cuda_matrix_CPPFLAGS = $(TESTS_CPPFLAGS)
tests_test_cuda_matrix_LDADD = $(TESTS_LDADD)
EXTRA_DIST += tests/test_cuda_plans tests/cuda_host/deviceprop-sm80.json tests/cuda_host/deviceprop-sm90.json \
  tests/cuda_host/deviceprop-sm100.json tests/cuda_host/README.md

# For continuous integration (.ci/run), which runs all tests on the plain build. With sanitizers it leaves out those that look at
# sources or draw from made-up logs: nothing that is compiled runs in them. From a release archive, which holds every file that git
# tracks, it runs these and those that read files of the source tree: what others compute is the same from there. (The two files that
# tests/cli/usage.py reads are needed to configure and to install.)
SOURCE_TESTS = tests/check_includes tests/check_format tests/check_spdx tests/check_docs tests/check_site tests/check_analysis tests/check_figures tests/check_spills tests/check_mpi_wrapper
ARCHIVE_TESTS = $(SOURCE_TESTS) tests/check_config_doc tests/check_log_doc tests/check_grids tests/test_cpu_avx2 tests/test_fuzz_corpus \
	tests/test_golden_data tests/test_schedule tests/reference/pipeline_simpy.py tests/read_while_running.sh \
	tests/cli/bench_device.py tests/cli/tick_model.py tests/cli/inspect_memory.py
.PHONY: list-compiled-tests list-archive-tests
list-compiled-tests:
	@echo $(filter-out $(SOURCE_TESTS),$(TESTS))
list-archive-tests:
	@echo $(filter $(ARCHIVE_TESTS),$(TESTS))
