# SPDX-License-Identifier: Apache-2.0
# The figure of plot_timeline.py with gnuplot. gnuplot reads no HDF5: analysis/plot_timeline_gnuplot makes the columns and starts
# this script with
#   here        the folder of these scripts
#   file        columns: start (s), end (s), top and bottom as stages, kind (0 F, 1 B, 2 W, 3 U), microbatch; -1 of a column that
#               several narrow actions share
#   ticks       columns: time (s) and stage of the updates too short for a bar; empty where there is none
#   first, last of the stages
#   from, to    time drawn (s)
#   label       name of the run
#   kinds       those that have bars, such as "0 1"
#   sudden      what the ticks are: "", "takes no time" or "too short for a bar"
#   shared      1 if narrow actions share columns
#   thin        1 if many bars are too narrow for an edge
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
set title label.": microbatches by stage".(shared ? " (narrow columns: share of the time by kind)" : "") noenhanced
step = stages < 41 ? 1 : stages / 20
set ytics step
set tics out
set grid noytics
set key outside top right horizontal
if (thin) { set style fill solid noborder } else { set style fill solid border linecolor rgb "white" }
array shade[4] = ["#56b4e9", "#e69f00", "#009e73", "#000000"]
array name[4] = ["F: forward", "B: backward", "W: weight gradient", "U: update"]
bar(k, shared) = column(5) == k && (column(6) < 0) == shared ? (column(1) + column(2)) / 2 / size : NaN
# A number is written where its bar is wide enough: a digit is about 6 pixels of about 1430.
fits(a, b, m) = (b - a) / span * 1430 > 6 * strlen(sprintf("%d", m)) + 3 && stages < 41
# The columns that narrow actions share are drawn later, without an edge: they would be nothing but edge.
plot for [k in kinds] file using (bar(k + 0, 0)):(($3 + $4) / 2):($1 / size):($2 / size):3:4 \
       with boxxyerror fillcolor rgb shade[k + 1] title name[k + 1], \
     for [k in kinds] file using (bar(k + 0, 1)):(($3 + $4) / 2):($1 / size):($2 / size):3:4 \
       with boxxyerror fillstyle solid noborder fillcolor rgb shade[k + 1] notitle, \
     ticks using ($1 / size):($2 + 0.36):(0):(0.1) with vectors nohead linewidth 1 linecolor rgb "#000000" title (sudden eq "" ? "" : "U: update, ".sudden), \
     file using ($5 < 3 && $6 >= 0 && fits($1, $2, $6) ? ($1 + $2) / 2 / size : NaN):(($3 + $4) / 2):(sprintf("%d", $6)) \
       with labels font "sans,8" notitle
