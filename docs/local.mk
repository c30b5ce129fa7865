# docs: the man pages are installed, the rest is read in the source tree.
dist_man_MANS += docs/petra.1
# A page a subcommand is what the program says of its tables; tests/check_manual holds this list against the subcommands.
SUBCOMMAND_MANUALS = docs/petra-data.1 docs/petra-evaluate.1 docs/petra-info.1 docs/petra-init.1 docs/petra-inspect.1 \
	docs/petra-methods.1 docs/petra-profile.1 docs/petra-schedule.1 docs/petra-simulate.1 docs/petra-sweep.1 docs/petra-train.1
nodist_man_MANS = $(SUBCOMMAND_MANUALS)
CLEANFILES += $(SUBCOMMAND_MANUALS)
$(SUBCOMMAND_MANUALS): petra$(EXEEXT)
	@$(MKDIR_P) docs
	$(AM_V_GEN)./petra$(EXEEXT) $(patsubst petra-%.1,%,$(@F)) --help-man >$@.tmp && mv -f $@.tmp $@
EXTRA_DIST += docs/config.md docs/data.md docs/design.md docs/execute.md docs/life-of-a-microbatch.md docs/pytorch.md \
	docs/semantics.md docs/sweep.md \
	docs/adr/0001-one-static-library.md \
	docs/adr/0002-evaluation-by-snapshot.md \
	docs/adr/0003-config-additions.md \
	docs/adr/0004-exit-codes.md \
	docs/adr/0005-bottleneck-shortcuts.md \
	docs/adr/0006-warm-up.md \
	docs/adr/0007-one-schedule-layer.md \
	docs/adr/0008-evaluation-without-virtual-time.md \
	docs/adr/0009-no-mask-for-relu.md \
	docs/adr/0010-log-before-config.md \
	docs/adr/0011-keys-against-the-plan.md \
	docs/adr/0012-weights-by-version.md \
	docs/adr/0013-resume-by-going-through-the-schedule.md \
	docs/adr/0014-actions-as-graphs.md \
	docs/adr/0015-a-seal-on-every-file.md \
	docs/adr/0016-every-rank-goes-through-the-whole-schedule.md \
	docs/adr/0017-by-arrival-a-rank-does-what-came-first.md \
	docs/adr/0018-messages-between-gpus.md \
	docs/adr/0019-a-prediction-is-a-second-simulation.md \
	docs/adr/0020-a-checkpoint-in-parts.md \
	docs/adr/0021-replicas-before-an-update.md

# docs/config.md is what the program says of its table of keys.
regen-docs: petra$(EXEEXT)
	./petra$(EXEEXT) train --help-config-markdown >config.md.new
	mv -f config.md.new $(srcdir)/docs/config.md
.PHONY: regen-docs
