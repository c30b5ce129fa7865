# SPDX-License-Identifier: Apache-2.0
# docs: the man pages are installed, and the documents in one folder with semantics/ (methods and decisions are read in the source tree or as a site).
dist_man_MANS += docs/petra.1
# The page of a subcommand is made from its help, which is in Python for some of them; tests/cli/usage.py compares this list with the subcommands.
SUBCOMMAND_MANUALS = docs/petra-compare.1 docs/petra-data.1 docs/petra-evaluate.1 docs/petra-export.1 docs/petra-info.1 docs/petra-init.1 docs/petra-inspect.1 \
	docs/petra-list.1 docs/petra-methods.1 docs/petra-plan.1 docs/petra-profile.1 docs/petra-reach.1 docs/petra-report.1 docs/petra-schedule.1 docs/petra-simulate.1 docs/petra-sweep.1 docs/petra-train.1
nodist_man_MANS = $(SUBCOMMAND_MANUALS)
CLEANFILES += $(SUBCOMMAND_MANUALS)
$(SUBCOMMAND_MANUALS): petra$(EXEEXT) $(srcdir)/docs/manual.awk
	@$(MKDIR_P) docs
	$(AM_V_GEN){ ./petra$(EXEEXT) --version; ./petra$(EXEEXT) --help; ./petra$(EXEEXT) help $(patsubst petra-%.1,%,$(@F)) 2>/dev/null; } | \
	  $(AWK) -v name=$(patsubst petra-%.1,%,$(@F)) -f $(srcdir)/docs/manual.awk >$@.tmp && mv -f $@.tmp $@
dist_doc_DATA = README.md NEWS.md $(DOCUMENTS)
DOCUMENTS = docs/commands.md docs/config.md docs/data.md docs/design.md \
	docs/execute.md docs/faq.md docs/formats.md docs/glossary.md docs/hdf5-schema.md \
	docs/install.md docs/life-of-a-microbatch.md docs/optimiser-and-delay.md docs/paper.md docs/plan-format.md docs/pytorch.md docs/reach.md docs/reports.md docs/requests.md \
	docs/sweep.md docs/tutorial.md docs/which-schedule.md docs/your-model.md
semanticsdir = $(docdir)/semantics
dist_semantics_DATA = docs/semantics/README.md docs/semantics/data.md docs/semantics/evaluation.md \
	docs/semantics/gradient-fidelity.md docs/semantics/guarantees.md docs/semantics/memory.md \
	docs/semantics/methods.md docs/semantics/mitigation.md docs/semantics/networks.md \
	docs/semantics/optimiser.md docs/semantics/precision.md docs/semantics/quantisation.md docs/semantics/replicas.md \
	docs/semantics/schedule.md docs/semantics/time.md docs/semantics/transformers.md
EXTRA_DIST += docs/manual.awk docs/optimiser-and-delay.png \
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
	docs/adr/0021-replicas-before-an-update.md \
	docs/adr/0022-a-warm-up-is-an-order-before-the-order.md \
	docs/adr/0023-sequences-and-functions.md \
	docs/adr/0024-numbers-of-two-types.md \
	docs/adr/0025-probes-where-the-weights-are.md \
	docs/adr/0026-joined-actions-are-one-step.md \
	docs/adr/0027-an-order-may-be-searched.md \
	docs/adr/0028-whole-periods-are-skipped.md \
	docs/adr/0029-a-quantised-tensor-is-bytes.md \
	docs/adr/0030-llama-within-the-transformers.md \
	docs/adr/README.md

# A page for each method, and the configs of its commands.
EXTRA_DIST += docs/methods/ten-stages.yaml docs/methods/four-stages.yaml docs/methods/train.yaml scripts/method_table \
	docs/methods/1f1b.md docs/methods/README.md docs/methods/approximate-input.md docs/methods/backprop.md \
	docs/methods/checkpoint.md docs/methods/ddg.md docs/methods/delayed-reversible.md docs/methods/delayed.md docs/methods/dgl.md \
	docs/methods/dsp.md docs/methods/dualpipe-v.md docs/methods/fr.md docs/methods/gpipe-checkpoint.md docs/methods/gpipe.md \
	docs/methods/interleaved-zb.md docs/methods/interleaved.md docs/methods/looped-bfs.md docs/methods/petra-arrival.md docs/methods/petra.md \
	docs/methods/pipedream-2bw.md docs/methods/pipedream.md docs/methods/reversible.md docs/methods/v-half.md docs/methods/v-min.md \
	docs/methods/zb-h1.md docs/methods/zb-h2.md docs/methods/zb-v.md docs/methods/paci.md
# Methods that are combinations of keys, and their configs.
EXTRA_DIST += docs/methods/train-gpt.yaml docs/methods/nesterov-async.md docs/methods/nesterov-async.yaml docs/methods/pipeoptim.md \
	docs/methods/pipeoptim.yaml docs/methods/muon-prediction.yaml docs/methods/error-feedback.md docs/methods/error-feedback.yaml

# docs/config.md is what the program says of its table of keys; the pages below show what their commands print. The tutorials train for
# minutes, and have a target of their own.
REGEN_PAGES = README.md docs/commands.md docs/faq.md docs/which-schedule.md docs/plan-format.md docs/methods/*.md
regen-docs: petra$(EXEEXT)
	./petra$(EXEEXT) train --help-config-markdown >config.md.new
	mv -f config.md.new $(srcdir)/docs/config.md
	srcdir=$(srcdir) $(SHELL) $(srcdir)/tests/cli/python $(srcdir)/tests/check_log_doc --write
	pages=`cd $(srcdir) && echo $(REGEN_PAGES)`; \
	$(SHELL) $(srcdir)/tests/cli/python $(srcdir)/tests/cli/console.py --update ./petra$(EXEEXT) $$pages
regen-tutorial: petra$(EXEEXT)
	$(SHELL) $(srcdir)/tests/cli/python $(srcdir)/tests/cli/console.py --update ./petra$(EXEEXT) docs/tutorial.md docs/optimiser-and-delay.md docs/reach.md
.PHONY: regen-docs regen-tutorial

# The documentation as a site, in html/ of the build folder.
EXTRA_DIST += scripts/make_site docs/site/site.css
html-local:
	@test -n '$(MKDOCS_PYTHON)' || { echo 'make html: MkDocs is missing (Debian: mkdocs); install it and run ./configure again' >&2; exit 1; }
	@PYTHONDONTWRITEBYTECODE=1 '$(MKDOCS_PYTHON)' $(srcdir)/scripts/make_site $(srcdir) html-pages html
.PHONY: clean-html
clean-html:
	rm -rf html html-pages html-pages.yml
