# SPDX-License-Identifier: Apache-2.0
# analysis: scripts that read logs; nothing here is built. Installed, so that petra report and petra export find their own.
analysisdir = $(pkgdatadir)/analysis
dist_analysis_SCRIPTS = analysis/petra_report.py analysis/petra_export.py analysis/to_tensorboard.py \
  analysis/plot_training.py analysis/plot_training_gnuplot analysis/plot_timeline.py analysis/plot_timeline_gnuplot \
  analysis/plot_probe.py analysis/plot_probe_gnuplot analysis/plot_sweep.py analysis/plot_reach.py analysis/weights_pytorch.py \
  analysis/plot_accumulation.py analysis/plot_accumulation_gnuplot
dist_analysis_DATA = analysis/petra_runs.py analysis/petra_torch.py analysis/petra_torch_transformers.py analysis/weights_transformers.py analysis/plot_common.py analysis/plot_common.gp analysis/plot_gnuplot.sh \
  analysis/report_data.py analysis/report_figures.py analysis/report_page.py analysis/report_page.js analysis/report_page.css \
  analysis/plot_training.gp analysis/plot_timeline.gp analysis/plot_probe.gp analysis/plot_accumulation.gp
# The Python that configure found.
nodist_analysis_DATA = analysis/python
DISTCLEANFILES = analysis/python
