# SPDX-License-Identifier: Apache-2.0
# bench: programs that measure; built on request (`make bench/bench_ops`), never run by `make check`.
EXTRA_PROGRAMS += bench/bench_ops
bench_bench_ops_SOURCES = bench/bench_ops.c bench/frame.h
bench_bench_ops_LDADD = $(PETRA_LDADD)
EXTRA_DIST += bench/NOTES.md bench/RESULTS.md bench/peer_pytorch_tick.py bench/groups_model.py

EXTRA_PROGRAMS += bench/bench_sequence
bench_bench_sequence_SOURCES = bench/bench_sequence.c bench/frame.h
bench_bench_sequence_LDADD = $(PETRA_LDADD)
EXTRA_DIST += bench/peer_pytorch_sequence.py bench/peer_pytorch_gpt.py bench/gpt_table.py

EXTRA_PROGRAMS += bench/bench_tick
bench_bench_tick_SOURCES = bench/bench_tick.c bench/tick_operations.c bench/tick_operations.h
bench_bench_tick_LDADD = $(PETRA_LDADD)
EXTRA_DIST += bench/cpu_table.py bench/alternate.py bench/trainer_table.py
# The table of ticks on the CPU, beside those of PyTorch where PYTORCH, a Python, has it, within ten minutes: make bench-cpu
# PYTORCH=/path/to/python CPU_TABLE="--write $(srcdir)/bench/RESULTS.md"; CPU_TABLE=--prepare compiles before, whatever else is running.
CPU_TABLE =
.PHONY: bench-cpu
bench-cpu: bench/bench_tick
	$(PYTHON_INTERPRETER) $(srcdir)/bench/cpu_table.py bench/bench_tick --peer $(PYTORCH) $(CPU_TABLE)

# The tick and its operations on a device, whose work goes on after a call has returned: bench_tick looks at the clock in the
# middle of an action, and its convolutions would each be a launch of its own, so this is another program. make check runs it small
# (tests/cli/bench_device.py).
BENCH_DEVICE_SOURCES = bench/bench_device.c bench/device.h bench/device_run.c bench/device_tick.c bench/device_ops.c
check_PROGRAMS += bench/bench_device
bench_bench_device_SOURCES = $(BENCH_DEVICE_SOURCES)
bench_bench_device_LDADD = $(PETRA_LDADD)

# What a tick on a device launches, reads, writes and computes, counted over stand-ins and priced: bench/tick_model (tests/local.mk, since
# it is linked over those of the tests). PyTorch's count beside it: bench/peer_pytorch_tick.py --count > FILE; bench/tick_model --pytorch FILE.

EXTRA_PROGRAMS += bench/bench_engine
bench_bench_engine_SOURCES = bench/bench_engine.c
bench_bench_engine_LDADD = $(PETRA_LDADD)

# The same pipeline in petra, SimPy and SimGrid: bench/peers. SimGrid's is built where SimGrid is, by a C++ compiler.
EXTRA_PROGRAMS += bench/peer_petra
bench_peer_petra_SOURCES = bench/peer_petra.c
bench_peer_petra_LDADD = $(PETRA_LDADD)
EXTRA_DIST += bench/peers bench/peer_simpy.py bench/peer_simgrid.cpp
PEER_CXX = c++
PYTHON_INTERPRETER = python3
.PHONY: bench-peers
bench-peers: bench/peer_petra
	@simgrid=; \
	if $(PEER_CXX) -std=c++17 -O3 $(srcdir)/bench/peer_simgrid.cpp -o bench/peer_simgrid -lsimgrid 2>bench/peer_simgrid.log; then \
	  simgrid=./bench/peer_simgrid; \
	else echo "peers: SimGrid is not installed (bench/peer_simgrid.log), and left out"; fi; \
	$(PYTHON_INTERPRETER) $(srcdir)/bench/peers ./bench/peer_petra '$(PYTHON_INTERPRETER) $(srcdir)/bench/peer_simpy.py' "$$simgrid"
CLEANFILES += bench/peer_simgrid bench/peer_simgrid.log
EXTRA_PROGRAMS += bench/bench_loader
bench_bench_loader_SOURCES = bench/bench_loader.c
bench_bench_loader_LDADD = $(PETRA_LDADD)

# A folder of JPEG images (root/train/CLASS/*.jpeg) to measure the loader on: make bench PETRA_IMAGES=/path
PETRA_IMAGES =

# `make bench` measures and prints; nothing is checked against a bound.
.PHONY: bench
bench: bench/bench_ops bench/bench_tick bench/bench_engine bench/bench_loader
	$(MAKE) $(AM_MAKEFLAGS) bench-cpu
	./bench/bench_ops
	./bench/bench_engine
	./bench/bench_loader
	test -z "$(PETRA_IMAGES)" || ./bench/bench_loader --set data.set=imagefolder --set data.path="$(PETRA_IMAGES)"
	$(MAKE) $(AM_MAKEFLAGS) bench-peers
	$(MAKE) $(AM_MAKEFLAGS) bench-device

# Where there is a GPU: the tick and its operations in three precisions, then the same tick in PyTorch, by the Python that has it
# (make bench PYTORCH=/path/to/python).
PYTORCH = python3
.PHONY: bench-device
if HAVE_CUDA
bench-device: bench/bench_device petra$(EXEEXT)
	@if ./petra info --json | grep -q '"no_device"'; then \
	  echo "bench-device: left out: there is no CUDA device"; \
	else \
	  ./bench/bench_device --set device.backend=cuda --precisions fp32,tf32,bf16 --batches 64,256 --graphs on,off && \
	  if $(PYTORCH) -c 'import torch' 2>/dev/null; then $(PYTORCH) -B $(srcdir)/bench/peer_pytorch_tick.py; \
	  else echo "bench-device: $(PYTORCH) has no PyTorch: no comparison (make bench PYTORCH=FILE)"; fi; \
	fi
else
bench-device:
	@echo "bench-device: left out: this build has no CUDA"
endif

# Messages between two ranks; built where MPI is: mpirun -n 2 bench/bench_wire
if HAVE_MPI
EXTRA_PROGRAMS += bench/bench_wire
bench_bench_wire_SOURCES = bench/bench_wire.c
bench_bench_wire_LDADD = $(PETRA_LDADD)
else
EXTRA_DIST += bench/bench_wire.c
endif
