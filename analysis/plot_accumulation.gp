# The figure of plot_accumulation.py with gnuplot. gnuplot reads no HDF5: analysis/plot_accumulation_gnuplot makes the columns
# and starts this script with
#   files   "DIR/METHOD ...": each a table of k, mean and half width of the accuracy in %
#   labels  the legend, one word a method
#   largest the largest k
#   last    evaluations that a run's mean is over
#   output_path
set terminal pngcairo size 780,520 font "sans,11"
set output output_path
set grid xtics ytics linetype 1 linecolor rgb "#dddddd"
set border 3
set tics nomirror
set logscale x 2
set xtics add autofreq 2
set key top right
set xlabel "microbatches per update, k"
set xrange [0.85:1.18 * largest]
set ylabel "top-1 accuracy on the evaluation set (%)"
set title (last == 1 ? "Last evaluation" : sprintf("Mean of the last %d evaluations", last))
array colour[7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
rgb(i) = colour[(i - 1) % 7 + 1]
plot for [i=1:words(files)] word(files, i) using 1:2:3 with yerrorlines linewidth 2 pointtype 5 + 2 * i \
       linecolor rgb rgb(i) title word(labels, i)
