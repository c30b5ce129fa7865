# SPDX-License-Identifier: Apache-2.0
"""Figures of runs and sweeps with matplotlib: a module for each script plot_NAME.py. `draw` of a
module returns a matplotlib.figure.Figure, and look.save writes it."""
