# SPDX-License-Identifier: Apache-2.0
# analysis: the Python package petrapipe and scripts that call it; nothing here is built. Installed together, so that the
# subcommands in Python find their own. `pip install ./analysis` installs the package alone.
analysisdir = $(pkgdatadir)/analysis
dist_analysis_SCRIPTS = \
  analysis/petra_export.py analysis/petra_report.py analysis/to_tensorboard.py analysis/weights_pytorch.py \
  analysis/plot_accumulation.py analysis/plot_probe.py analysis/plot_reach.py analysis/plot_sweep.py analysis/plot_timeline.py \
  analysis/plot_training.py \
  analysis/plot_accumulation_gnuplot analysis/plot_probe_gnuplot analysis/plot_timeline_gnuplot analysis/plot_training_gnuplot
dist_analysis_DATA = analysis/README.md analysis/entry.py analysis/petra_python.py analysis/plot_gnuplot.sh \
  analysis/plot_accumulation.gp analysis/plot_common.gp analysis/plot_probe.gp analysis/plot_timeline.gp analysis/plot_training.gp
EXTRA_DIST += analysis/pyproject.toml analysis/petrapipe/chakra.proto

petrapipedir = $(analysisdir)/petrapipe
dist_petrapipe_DATA = \
  analysis/petrapipe/__init__.py \
  analysis/petrapipe/__main__.py \
  analysis/petrapipe/alike.py \
  analysis/petrapipe/arguments.py \
  analysis/petrapipe/chain.py \
  analysis/petrapipe/chakra.py \
  analysis/petrapipe/checkpoints.py \
  analysis/petrapipe/command.py \
  analysis/petrapipe/comparison.py \
  analysis/petrapipe/configs.py \
  analysis/petrapipe/coupling.py \
  analysis/petrapipe/epoch_rows.py \
  analysis/petrapipe/errors.py \
  analysis/petrapipe/evaluation.py \
  analysis/petrapipe/export.py \
  analysis/petrapipe/facts.py \
  analysis/petrapipe/fit.py \
  analysis/petrapipe/grids.py \
  analysis/petrapipe/guard.py \
  analysis/petrapipe/hdf5_file.py \
  analysis/petrapipe/log_check.py \
  analysis/petrapipe/log_summary.py \
  analysis/petrapipe/microbatches.py \
  analysis/petrapipe/mitigations.py \
  analysis/petrapipe/modules.py \
  analysis/petrapipe/nearest.py \
  analysis/petrapipe/networks.py \
  analysis/petrapipe/plain_file.py \
  analysis/petrapipe/probe.py \
  analysis/petrapipe/program.py \
  analysis/petrapipe/protocols.py \
  analysis/petrapipe/reach_clusters.py \
  analysis/petrapipe/reach_groups.py \
  analysis/petrapipe/reach_json.py \
  analysis/petrapipe/reach_over.py \
  analysis/petrapipe/reach_places.py \
  analysis/petrapipe/reaching.py \
  analysis/petrapipe/run_facts.py \
  analysis/petrapipe/run_list.py \
  analysis/petrapipe/run_log.py \
  analysis/petrapipe/run_schema.py \
  analysis/petrapipe/runs.py \
  analysis/petrapipe/schedule.py \
  analysis/petrapipe/seals.py \
  analysis/petrapipe/signature.py \
  analysis/petrapipe/stage.py \
  analysis/petrapipe/stage_checks.py \
  analysis/petrapipe/stage_passes.py \
  analysis/petrapipe/stage_weights.py \
  analysis/petrapipe/stages.py \
  analysis/petrapipe/statistics.py \
  analysis/petrapipe/sweeps.py \
  analysis/petrapipe/table.py \
  analysis/petrapipe/tensorboard.py \
  analysis/petrapipe/tensors.py \
  analysis/petrapipe/text.py \
  analysis/petrapipe/trainer.py \
  analysis/petrapipe/trainings.py \
  analysis/petrapipe/transformers.py \
  analysis/petrapipe/weights.py \
  analysis/petrapipe/weights_difference.py \
  analysis/petrapipe/weights_files.py \
  analysis/petrapipe/weights_release.py \
  analysis/petrapipe/weights_transformers.py
commandsdir = $(petrapipedir)/commands
dist_commands_DATA = \
  analysis/petrapipe/commands/__init__.py \
  analysis/petrapipe/commands/chakra.py \
  analysis/petrapipe/commands/compare.py \
  analysis/petrapipe/commands/export.py \
  analysis/petrapipe/commands/inspect.py \
  analysis/petrapipe/commands/list.py \
  analysis/petrapipe/commands/reach.py \
  analysis/petrapipe/commands/report.py \
  analysis/petrapipe/commands/simulate.py \
  analysis/petrapipe/commands/sweep.py
sweepdir = $(petrapipedir)/sweep
dist_sweep_DATA = \
  analysis/petrapipe/sweep/__init__.py \
  analysis/petrapipe/sweep/cells.py \
  analysis/petrapipe/sweep/children.py \
  analysis/petrapipe/sweep/files.py \
  analysis/petrapipe/sweep/pool.py \
  analysis/petrapipe/sweep/slurm.py \
  analysis/petrapipe/sweep/summary.py \
  analysis/petrapipe/sweep/sweep.py
examplesdir = $(analysisdir)/examples
dist_examples_SCRIPTS = analysis/examples/nanogpt.py analysis/examples/resnet.py analysis/examples/unet.py
figuresdir = $(petrapipedir)/figures
dist_figures_DATA = \
  analysis/petrapipe/figures/__init__.py \
  analysis/petrapipe/figures/accumulation.py \
  analysis/petrapipe/figures/look.py \
  analysis/petrapipe/figures/probe.py \
  analysis/petrapipe/figures/reach.py \
  analysis/petrapipe/figures/sweep.py \
  analysis/petrapipe/figures/timeline.py \
  analysis/petrapipe/figures/training.py
reportdir = $(petrapipedir)/report
dist_report_DATA = \
  analysis/petrapipe/report/__init__.py \
  analysis/petrapipe/report/data.py \
  analysis/petrapipe/report/figures.py \
  analysis/petrapipe/report/page.css \
  analysis/petrapipe/report/page.js \
  analysis/petrapipe/report/page.py \
  analysis/petrapipe/report/write.py

# The Python that configure found.
nodist_analysis_DATA = analysis/python
DISTCLEANFILES = analysis/python
