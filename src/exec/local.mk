# src/exec: what drives a schedule: executor and worker interfaces, the worker on real stages.
libpetra_a_SOURCES += \
	src/exec/batch.c src/exec/batch.h \
	src/exec/evaluate.c \
	src/exec/executor.h \
	src/exec/labels.c src/exec/labels.h \
	src/exec/mailbox.c src/exec/mailbox.h \
	src/exec/probe.c src/exec/probe.h src/exec/probe_private.h \
	src/exec/probe_archive.c \
	src/exec/probe_compare.c \
	src/exec/probe_reference.c \
	src/exec/probe_versions.c \
	src/exec/probe_window.c \
	src/exec/worker.h \
	src/exec/worker_archive.c \
	src/exec/worker_stage.c src/exec/worker_stage.h src/exec/worker_stage_private.h
