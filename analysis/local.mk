# analysis: scripts that read logs, installed as they are; nothing here is built.
analysisdir = $(pkgdatadir)/analysis
dist_analysis_SCRIPTS = \
  analysis/plot_training.py analysis/plot_training_gnuplot \
  analysis/plot_timeline.py analysis/plot_timeline_gnuplot \
  analysis/plot_probe.py analysis/plot_probe_gnuplot \
  analysis/plot_sweep.py \
  analysis/plot_accumulation.py analysis/plot_accumulation_gnuplot \
  analysis/weights_pytorch.py
dist_analysis_DATA = analysis/plot_common.py analysis/plot_common.gp analysis/plot_gnuplot.sh \
  analysis/plot_training.gp analysis/plot_timeline.gp analysis/plot_probe.gp analysis/plot_accumulation.gp \
  analysis/petra_torch.py
