# bench: programs that measure; built on request (`make bench/bench_ops`), never run by `make check`.
EXTRA_PROGRAMS += bench/bench_ops
bench_bench_ops_SOURCES = bench/bench_ops.c
bench_bench_ops_LDADD = $(PETRA_LDADD)
EXTRA_DIST += bench/NOTES.md
