# SPDX-License-Identifier: Apache-2.0
# The figure of plot_timeline.py with gnuplot. gnuplot reads no HDF5: analysis/plot_timeline_gnuplot makes the columns and starts
# this script with
#   here        the folder of these scripts
#   file        columns: start (s), end (s), stage, kind (0 F, 1 B, 2 W, 3 U), microbatch
#   first, last of the stages
#   from, to    time drawn (s)
#   label       name of the run
#   kinds       those that there are and that take time, such as "0 1"
#   sudden      1 where updates take no time
#   rows        of the file
#   two         1 where F and the rest overlap: two rows a stage
#   output_path
stages = last - first + 1
width = 1560
height = stages < 41 ? 230 + 44 * stages : 2000
load here."/plot_common.gp"
span = to - from
size = span >= 2 ? 1.0 : span >= 2e-3 ? 1e-3 : span >= 2e-6 ? 1e-6 : 1e-9
unit = span >= 2 ? "s" : span >= 2e-3 ? "ms" : span >= 2e-6 ? "µs" : "ns"
set xrange [from / size:to / size]
set yrange [last + 0.62:first - 0.62]
set xlabel "time (".unit.")" # virtual, or of an executed run by the wall clock
set ylabel "stage"
set title label.": microbatches by stage" noenhanced
step = stages < 41 ? 1 : stages / 20
set ytics step
set tics out
set grid noytics
set key outside top right horizontal
if (rows < 2000) { set style fill solid border linecolor rgb "white" } else { set style fill solid noborder }
array shade[4] = ["#56b4e9", "#e69f00", "#009e73", "#000000"]
array name[4] = ["F: forward", "B: backward", "W: weight gradient", "U: update"]
middle(kind, stage) = two ? stage + (kind == 0 ? -0.21 : 0.21) : stage
half = two ? 0.2 : 0.41
# A number is written where its bar is wide enough: a digit is about 6 pixels of about 1430.
fits(a, b, m) = (b - a) / span * 1430 > 6 * strlen(sprintf("%d", m)) + 3 && stages < 41
plot for [k in kinds] file using ($4 == k + 0 && $2 > $1 ? ($1 + $2) / 2 / size : NaN):(middle($4, $3)): \
       ($1 / size):($2 / size):(middle($4, $3) - half):(middle($4, $3) + half) \
       with boxxyerror fillcolor rgb shade[k + 1] title name[k + 1], \
     file using ($4 == 3 && $2 == $1 ? $1 / size : NaN):($3 + 0.45) with points pointtype 9 pointsize 0.8 linecolor rgb "#000000" title (sudden ? "U: update, takes no time" : ""), \
     file using ($4 < 3 && fits($1, $2, $5) ? ($1 + $2) / 2 / size : NaN):(middle($4, $3)):(sprintf("%d", $5)) \
       with labels font "sans,8" notitle
