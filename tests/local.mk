# SPDX-License-Identifier: Apache-2.0
# tests: C programs (Check) and scripts. Each forks nothing: OpenMP regions in a forked child of a process that had one hang.
# Threads that wait sleep: spinning beside other programs would take their time (a hundred times slower at small layers).
AM_TESTS_ENVIRONMENT = CK_FORK=no; export CK_FORK; OMP_WAIT_POLICY=passive; export OMP_WAIT_POLICY; srcdir='$(srcdir)'; export srcdir; \
  NVCC='$(NVCC)'; export NVCC;
LOG_COMPILER =
TEST_EXTENSIONS = .py
PY_LOG_COMPILER = $(srcdir)/tests/cli/python

# What several test programs share: whole trainings, probes, golden files, messages between threads, the cases of operations.
check_LIBRARIES = tests/libtests.a
tests_libtests_a_SOURCES = tests/training.c tests/training_rig.c tests/probe_rig.c tests/golden_data.c tests/golden_file.c tests/wire_threads.c \
  tests/cases.c tests/cases_basic.c tests/cases_shuffle.c tests/cases_conv.c tests/cases_norm.c tests/cases_pool.c tests/cases_head.c \
  tests/cases_optim.c tests/cases_sequence.c tests/cases_quantise.c tests/naive.c tests/cuda_host/launched.c
# src/backend/cuda: the kernels, as C on the host
check_LIBRARIES += tests/libpetra_cuda_host.a
tests_libpetra_cuda_host_a_SOURCES = tests/cuda_host/device.c tests/cuda_host/kernels.c
tests_libpetra_cuda_host_a_CFLAGS = $(AM_CFLAGS) $(UNDEFINED_TRAPS_CFLAGS)
TESTS_LDADD = tests/libpetra_cuda_host.a tests/libtests.a $(PETRA_LDADD) $(CHECK_LIBS)

# A program without a line of its own is made of the one file of its name, by AM_CPPFLAGS and LDADD: automake's defaults.
LDADD = $(TESTS_LDADD)
# Tests that take longest are in LONG_C_TESTS and LONG_CLI_TESTS, which begin first.
LONG_C_TESTS = \
  tests/test_golden tests/test_no_memory tests/test_closed_forms tests/test_identities tests/test_methods tests/test_probe tests/test_gradients \
  tests/test_probe_references
C_TESTS = \
  tests/test_base tests/test_config tests/test_output tests/test_seal \
  tests/test_data tests/test_data_file tests/test_images tests/test_loader tests/test_samples tests/test_tokens \
  tests/test_backend tests/test_cpu tests/test_cpu_bf16 tests/test_op_gradients tests/test_ops tests/test_quantise tests/test_sequence tests/test_tensor \
  tests/test_blocks tests/test_model tests/test_optim tests/test_partition \
  tests/test_schedule tests/test_programs \
  tests/test_executor tests/test_stage tests/test_transport tests/test_progress_thread \
  tests/test_run_h5 tests/test_weights \
  tests/test_engine tests/test_critical tests/test_ledger tests/test_link tests/test_profile tests/test_rank_times \
  tests/test_simulate tests/test_search_cuts \
  tests/test_golden_data tests/test_arrival tests/test_replicas \
  tests/test_training_log tests/test_groups tests/test_precision \
  tests/test_invertible tests/test_stage_rules tests/test_mitigation tests/test_mitigation_runs \
  tests/test_cuda_host tests/test_cuda_kernels tests/test_cuda_norm tests/test_cuda_sequence tests/test_cuda_attention
check_PROGRAMS += $(LONG_C_TESTS) $(C_TESTS)

# Programs that scripts run.
check_PROGRAMS += tests/dump_batches tests/dump_logits tests/dump_shapes tests/pipeline_case

# src/backend/cuda on a machine without CUDA: a fake of its runtime and of its libraries
CUDA_FAKE_CPPFLAGS = -I$(top_srcdir)/tests/cuda_host $(AM_CPPFLAGS) -DPETRA_CUDA_FAKE
check_LIBRARIES += tests/libpetra_cuda_fake.a
tests_libpetra_cuda_fake_a_SOURCES = tests/cuda_host/runtime.c tests/cuda_host/streams.c tests/cuda_host/events.c \
  tests/cuda_host/capture.c tests/cuda_host/graphs.c tests/cuda_host/memory.c tests/cuda_host/convolution_host.c \
  tests/cuda_host/matrix_host.c tests/cuda_host/nccl_host.c
tests_libpetra_cuda_fake_a_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
# The whole backend over the fake, linked before libpetra.a: its registry knows `cuda`.
check_LIBRARIES += tests/libpetra_cuda_backend.a
tests_libpetra_cuda_backend_a_SOURCES = tests/cuda_host/launch.c src/backend/registry.c $(CUDA_BACKEND_FILES)
tests_libpetra_cuda_backend_a_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) -DPETRA_HAVE_CUDA
# Where cuDNN's headers are: cudnn_*.c over a fake of cuDNN's functions, in place of convolution_host.c.
if HAVE_CUDA
CUDNN_FAKE = tests/libpetra_cudnn_fake.a
check_LIBRARIES += tests/libpetra_cudnn_fake.a
CUDNN_TESTS = tests/test_cuda_cudnn
endif
tests_libpetra_cudnn_fake_a_SOURCES = $(CUDNN_FILES) \
  tests/cuda_host/cudnn_descriptors.c tests/cuda_host/cudnn_checks.c tests/cuda_host/cudnn_engines.c tests/cuda_host/cudnn_execute.c
tests_libpetra_cudnn_fake_a_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
CUDA_FAKE_CONVOLUTION_LDADD = tests/libtests.a tests/libpetra_cuda_backend.a tests/libpetra_cuda_fake.a tests/libpetra_cuda_host.a \
  tests/libpetra_cuda_backend.a tests/libpetra_cuda_fake.a $(TESTS_LDADD)
CUDA_FAKE_LDADD = tests/libtests.a tests/libpetra_cuda_backend.a $(CUDNN_FAKE) $(CUDA_FAKE_CONVOLUTION_LDADD)
CUDA_FAKE_TESTS = tests/test_cuda_training tests/test_cuda_backend tests/test_cuda_identities tests/test_cuda_runtime $(CUDNN_TESTS) \
  tests/test_cuda_segments tests/test_cuda_peers
check_PROGRAMS += $(CUDA_FAKE_TESTS)
tests_test_cuda_runtime_SOURCES = tests/test_cuda_runtime.c tests/test_cuda_runtime_capture.c tests/test_cuda_runtime_libraries.c
tests_test_cuda_runtime_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
tests_test_cuda_runtime_LDADD = tests/libpetra_cuda_fake.a $(TESTS_LDADD)
tests_test_cuda_cudnn_SOURCES = tests/test_cuda_cudnn.c tests/test_cuda_cudnn_search.c tests/test_cuda_cudnn_measure.c
tests_test_cuda_cudnn_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
tests_test_cuda_cudnn_LDADD = $(CUDNN_FAKE) $(CUDA_FAKE_LDADD)
tests_test_cuda_backend_SOURCES = tests/test_backend.c
tests_test_cuda_backend_CPPFLAGS = $(AM_CPPFLAGS) -DPETRA_TEST_CUDA
tests_test_cuda_backend_LDADD = $(CUDA_FAKE_LDADD)
tests_test_cuda_training_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
tests_test_cuda_training_LDADD = $(CUDA_FAKE_LDADD)
tests_test_cuda_identities_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
tests_test_cuda_identities_LDADD = $(CUDA_FAKE_LDADD)
tests_test_cuda_segments_SOURCES = tests/test_cuda_segments.c tests/test_cuda_segments_sequence.c
tests_test_cuda_segments_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
tests_test_cuda_segments_LDADD = $(CUDA_FAKE_LDADD)
tests_test_cuda_peers_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
tests_test_cuda_peers_LDADD = $(CUDA_FAKE_LDADD)
# petra as a whole over the fakes, for runs on several processes with a device each
check_PROGRAMS += tests/petra_fake
tests_petra_fake_SOURCES = $(petra_SOURCES) tests/cuda_host/mpi_host.c
tests_petra_fake_LDADD = $(CUDA_FAKE_LDADD)
# The benchmark for devices, small: on cpu, and over the fake.
check_PROGRAMS += bench/bench_device_fake
bench_bench_device_fake_SOURCES = $(BENCH_DEVICE_SOURCES)
bench_bench_device_fake_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS) -DPETRA_HAVE_CUDA
bench_bench_device_fake_LDADD = $(CUDA_FAKE_LDADD)
# What a tick launches, counted over stand-ins that compute nothing: that of cudnn_*.c is convolution_host.c, which knows the shapes.
check_PROGRAMS += bench/tick_model
bench_tick_model_SOURCES = bench/tick_model.c bench/tick_count.c bench/tick_count.h bench/device.h bench/device_run.c
bench_tick_model_CPPFLAGS = $(CUDA_FAKE_CPPFLAGS)
bench_tick_model_LDADD = $(CUDA_FAKE_CONVOLUTION_LDADD)

# The same on a device; they end with 77 where there is none. Engines of cuDNN without a GPU: a script runs cuda_engines, as it knows a library that
# is not there.
if HAVE_CUDA
DEVICE_TESTS = tests/test_device_backend tests/test_device_training tests/test_device_identities tests/test_device_precision \
  tests/test_cuda_matrix
CUDA_ENGINES_TESTS = tests/test_cuda_engines
check_PROGRAMS += tests/cuda_engines $(DEVICE_TESTS)
endif
tests_test_device_backend_SOURCES = tests/test_backend.c
tests_test_device_backend_CPPFLAGS = $(AM_CPPFLAGS) -DPETRA_TEST_CUDA
tests_test_device_training_SOURCES = tests/test_cuda_training.c
tests_test_device_identities_SOURCES = tests/test_cuda_identities.c
tests_test_device_precision_SOURCES = tests/test_precision.c
tests_test_device_precision_CPPFLAGS = $(AM_CPPFLAGS) -DPETRA_TEST_CUDA
tests_cuda_engines_SOURCES = tests/cuda_engines.c tests/cuda_host/driver.c
tests_cuda_engines_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic
tests_cuda_engines_LDADD = $(TESTS_LDADD) $(CUBLAS_LIBS)
# Its own cuBLAS is found as a library's would be.
tests_test_cuda_matrix_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic

# Scripts: the layers, the documents, the analysis scripts. Nothing that is compiled runs in these.
SOURCE_TESTS = tests/check_includes tests/check_format tests/check_spdx tests/check_docs tests/check_site tests/check_analysis \
  tests/check_figures tests/check_instructions tests/check_spills tests/check_mpi_wrapper tests/check_python tests/check_python_style
# The program as its user meets it. Python scripts: TEST_EXTENSIONS gives them their interpreter.
LONG_CLI_TESTS = \
  tests/cli/resume.py tests/cli/execute.py tests/cli/execute_ends.py tests/cli/plan.py tests/cli/report.py tests/cli/report_beside.py tests/cli/reach.py tests/cli/reach_rule.py \
  tests/cli/execute_gpu.py tests/cli/pages.py tests/cli/usage.py tests/cli/grids.py tests/cli/sweep.py tests/cli/probe.py tests/cli/overwrite.py tests/cli/gpu_kit.py \
  tests/cli/damage.py tests/cli/damaged_logs.py tests/cli/profile_costs.py tests/cli/simulate.py tests/cli/cycles.py
CLI_TESTS = \
  tests/cli/bad_input.py tests/cli/no_memory.py tests/cli/data.py tests/cli/host.py tests/cli/schedule_file.py tests/cli/torch_csv.py tests/cli/random_runs.py \
  tests/cli/simulate_results.py tests/cli/replicas.py tests/cli/predicted.py tests/cli/reproducible.py tests/cli/weights_torch.py tests/cli/weights_transformers.py tests/cli/weights_damage.py \
  tests/cli/runs.py tests/cli/control_characters.py tests/cli/placement.py tests/cli/data_images.py tests/cli/fit.py \
  tests/cli/local_learning.py tests/cli/memory.py tests/cli/quantised.py tests/cli/methods.py tests/cli/plan_json.py tests/cli/json_contract.py tests/cli/precision.py tests/cli/requests.py tests/cli/commands.py tests/cli/random_orders.py tests/cli/random_times.py tests/cli/searched_orders.py tests/cli/inspect_memory.py \
  tests/cli/data_sample.py tests/cli/get_data.py tests/cli/plans.py tests/cli/bench_device.py tests/cli/tick_model.py \
  tests/cli/cuda_info.py tests/cli/bundle.py tests/cli/examples.py tests/cli/chakra.py tests/cli/package.py tests/cli/torch_log.py \
  tests/cli/torch_runtime.py tests/cli/torch_examples.py tests/cli/torch_trainer.py tests/cli/torch_modules.py tests/cli/torch_protocols.py tests/cli/torch_files.py
SCRIPTED_TESTS = tests/check_config_doc tests/check_log_doc tests/check_completion tests/test_cpu_avx2 tests/test_backend_avx2 \
  tests/read_while_running.sh tests/reference/pipeline_simpy.py
# In this order they are begun: those that take longest come first, so that all cores are busy to the end.
TESTS += $(LONG_C_TESTS) $(LONG_CLI_TESTS) $(CUDA_FAKE_TESTS) $(CUDA_ENGINES_TESTS) $(SOURCE_TESTS) $(SCRIPTED_TESTS) $(CLI_TESTS) $(C_TESTS) \
  $(DEVICE_TESTS)

# Each make makes git_commit.h again, and programs that contain it wait for it. Without this line the tests of such a program begin only
# after the scripts, because make starts the tests that need not wait.
$(TEST_LOGS): | git_commit.h

# All that the tests read; scripts/missing-in-archive compares an archive with what git tracks.
EXTRA_DIST += $(wildcard $(addprefix $(srcdir)/tests/,*.h *.def *.py *.sh *.supp check_* *_avx2 test_cuda_engines \
  cli/*.py cli/*.js cli/python cuda_host/*.h cuda_host/*.json cuda_host/*.md golden/*.h5 golden/*.txt reference/*.md reference/*.py \
  reference/make_golden)) tests/refuse_memory.c tests/slow_listing.c

# Golden files are remade by this target alone: make regen-golden PYTORCH_INTERPRETER=PATH (a Python with PyTorch and h5py).
PYTORCH_INTERPRETER = python3
.PHONY: regen-golden
regen-golden: tests/test_schedule
	$(srcdir)/tests/reference/make_golden $(PYTORCH_INTERPRETER)
	for script in probes recalibrated optimisers transformers; do \
	  PYTHONDONTWRITEBYTECODE=1 $(PYTORCH_INTERPRETER) $(srcdir)/tests/reference/make_$$script.py $(srcdir)/tests/golden || exit 1; done
	tests/test_schedule --regen $(srcdir)/tests/golden

# For continuous integration (.ci/run), which runs all tests on the plain build. With sanitizers it runs what they can find errors in:
# tests of compiled code. It leaves out SOURCE_TESTS, SCRIPT_TESTS, whose subject is Python or a document, and NUMBER_TESTS, whose
# subject is a number: the code that these run is that of other tests. Scripts that try many cases try a third of them (`sample` in
# tests/cli/program.py). From a release archive, which holds every file that git
# tracks, it runs those that read files of the source tree: what others compute or draw is the same from there. (The two files that
# tests/cli/usage.py reads are needed to configure and to install.)
ARCHIVE_TESTS = $(filter-out tests/check_analysis tests/check_figures,$(SOURCE_TESTS)) tests/check_config_doc tests/check_log_doc tests/test_cpu_avx2 tests/test_fuzz_corpus \
	tests/test_golden_data tests/test_schedule tests/reference/pipeline_simpy.py tests/read_while_running.sh \
	tests/cli/bench_device.py tests/cli/tick_model.py tests/cli/inspect_memory.py tests/cli/package.py
SCRIPT_TESTS = tests/cli/reach.py tests/cli/reach_rule.py tests/cli/sweep.py tests/cli/grids.py tests/cli/runs.py tests/cli/commands.py \
  tests/cli/chakra.py tests/cli/fit.py tests/cli/pages.py tests/cli/report.py tests/cli/report_beside.py tests/cli/damaged_logs.py tests/cli/package.py tests/cli/gpu_kit.py tests/cli/bundle.py tests/cli/get_data.py tests/cli/torch_log.py tests/check_completion \
  tests/check_config_doc tests/check_log_doc
NUMBER_TESTS = tests/test_golden tests/cli/bench_device.py tests/cli/tick_model.py tests/cli/reproducible.py tests/cli/simulate_results.py \
  tests/cli/random_times.py tests/cli/searched_orders.py tests/cli/precision.py tests/cli/memory.py tests/cli/weights_torch.py tests/cli/weights_transformers.py tests/cli/weights_damage.py tests/cli/torch_runtime.py \
  tests/cli/torch_examples.py tests/cli/torch_trainer.py tests/cli/torch_modules.py tests/cli/torch_protocols.py tests/cli/torch_files.py tests/test_cpu_avx2 \
  tests/reference/pipeline_simpy.py
# The programs that ARCHIVE_TESTS run. The others are compiled from the same files as in the builds before.
PROGRAMS_FROM_ARCHIVE = tests/test_cpu tests/test_fuzz_corpus tests/test_golden_data tests/test_run_h5 tests/test_schedule tests/pipeline_case \
	bench/bench_device bench/bench_device_fake bench/tick_model
.PHONY: list-compiled-tests list-archive-tests list-archive-programs
list-compiled-tests:
	@echo $(filter-out $(SOURCE_TESTS) $(SCRIPT_TESTS) $(NUMBER_TESTS),$(TESTS))
list-archive-tests:
	@echo $(filter $(ARCHIVE_TESTS),$(TESTS))
list-archive-programs:
	@echo $(PROGRAMS_FROM_ARCHIVE)
