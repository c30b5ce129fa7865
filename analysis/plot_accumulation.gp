# SPDX-License-Identifier: Apache-2.0
# The figure of plot_accumulation.py with gnuplot. gnuplot reads no HDF5: analysis/plot_accumulation_gnuplot makes the columns
# and starts this script with
#   here    the folder of these scripts
#   files   "DIR/METHOD ...": each a table of k, mean, and lower and upper end of the bar, of the accuracy in % or of the loss
#   labels  the legend, one word a method
#   largest the largest k
#   label   what a point and its bar are
#   drawn   what is drawn, with its unit
#   output_path
width = 780
height = 560
load here."/plot_common.gp"
n = words(files)
set logscale x 2
set xtics add autofreq 2
set bmargin at screen 0.17
set key at screen 0.5,0.01 center bottom horizontal noenhanced
set xlabel "microbatches per update, k".(n > 1 ? " (lines are set apart sideways)" : "")
set xrange [0.85:1.18 * largest]
set ylabel drawn
set title label
place(k, i) = k * 1.035 ** (i - (n + 1) / 2.0)
plot for [i=1:n] word(files, i) using (place($1, i)):2:3:4 with yerrorbars linewidth 2 pointtype point(i) linecolor rgb colour(i) notitle, \
     for [i=1:n] word(files, i) using (place($1, i)):2 with linespoints linewidth 2 dashtype dash(i) pointtype point(i) \
       linecolor rgb colour(i) title word(labels, i)
