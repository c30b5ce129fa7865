# SPDX-License-Identifier: Apache-2.0
# The figures of plot_probe.py with gnuplot. gnuplot reads no HDF5: analysis/plot_probe_gnuplot makes the columns and starts this
# script with
#   here     the folder of these scripts
#   folder   with MEASURE.PAIR (epoch, then a mean for each stage) and by_stage.EPOCH.PAIR (stage cosine)
#   stages   J
#   epochs   "E ...": those of figure 6, at most six
#   window   epochs of the running mean in figure 5
#   figure_5, figure_6
# Dark to light, without the yellows, which white paper swallows.
set palette defined (0 "#440154", 0.28 "#3b528b", 0.57 "#21918c", 0.85 "#5ec962", 1 "#a8db34")
set cbrange [0.5:stages + 0.5]

# Running mean over the last `window` points.
array last[window]
n = 0
mean(x) = (n = n + 1, last[(n - 1) % window + 1] = x, sum [i = 1:(n < window ? n : window)] last[i] / (n < window ? n : window))
begin(x) = (n = 0, x)
file(measure, pair) = folder."/".measure.".".pair

output_path = figure_5
width = 1430
height = 960
load here."/plot_common.gp"
set multiplot layout 2,2 margins 0.06,0.93,0.1,0.95 spacing 0.09,0.11
set xlabel "epoch"
set key at screen 0.5,0.005 center bottom horizontal
unset colorbox
set cblabel "stage"
set cbtics 1
do for [panel = 1:4] {
  measure = panel <= 2 ? "cosine" : "norm_ratio"
  set ylabel (panel <= 2 ? "cosine (1)" : "norm ratio (1)")
  if (panel == 1) { set title "(a) cosine of the method's gradient and the delayed one" }
  if (panel == 2) { set title "(b) cosine with the end-to-end gradient" }
  if (panel == 3) { set title "(c) norm of the method's gradient over that of the delayed one" }
  if (panel == 4) { set title "(d) norm over that of the end-to-end gradient" }
  if (panel == 2) { set colorbox user origin screen 0.95, screen 0.1 size screen 0.015, screen 0.85 } else { unset colorbox }
  if (panel % 2 == 1) {
    plot for [j = 1:stages] file(measure, "method_delayed") using ($0 == 0 ? begin($1) : $1):(mean(column(j + 1))) \
           with lines linewidth 1.5 linecolor palette cb j notitle
  } else {
    plot for [j = 1:stages] file(measure, "method_end_to_end") using ($0 == 0 ? begin($1) : $1):(mean(column(j + 1))) \
           with lines linewidth 1.5 linecolor palette cb j notitle, \
         for [j = 1:stages] file(measure, "delayed_end_to_end") using ($0 == 0 ? begin($1) : $1):(mean(column(j + 1))) \
           with lines linewidth 1.5 dashtype 2 linecolor palette cb j notitle, \
         NaN with lines linecolor rgb "black" title (panel == 2 ? "gradient of the method" : ""), \
         NaN with lines linecolor rgb "black" dashtype 2 title (panel == 2 ? "delayed gradient" : "")
  }
}
unset multiplot

output_path = figure_6
panels = words(epochs)
columns = panels < 3 ? panels : 3
rows = (panels - 1) / columns + 1
width = 100 + 440 * columns
height = 165 + 390 * rows
load here."/plot_common.gp"
set xlabel "stage"
set ylabel "cosine (1)"
set xtics 1
set xrange [0.5:stages + 0.5]
set key maxrows 1 width 4
by_stage(epoch, pair) = folder."/by_stage.".epoch.".".pair
low = 1
do for [e in epochs] {
  do for [pair in "method_delayed method_end_to_end delayed_end_to_end"] {
    stats by_stage(e, pair) using 2 nooutput
    low = STATS_min < low ? STATS_min : low
  }
}
set yrange [low - 0.04 * (1.01 - low):1.01]
set multiplot layout rows,columns margins 90.0 / width,1 - 20.0 / width,140.0 / height,1 - 40.0 / height \
    spacing 80.0 / width,100.0 / height
do for [i = 1:panels] {
  e = word(epochs, i)
  set title "epoch ".e.(i == panels ? " (the last)" : "")
  if (i == 2) { unset key }
  plot by_stage(e, "method_delayed") using 1:2 with linespoints linewidth 3 pointsize 1.5 pointtype point(1) linecolor rgb colour(1) \
         title "method and delayed", \
       by_stage(e, "method_end_to_end") using 1:2 with linespoints linewidth 2 pointsize 1.1 pointtype point(2) linecolor rgb colour(2) \
         title "method and end-to-end", \
       by_stage(e, "delayed_end_to_end") using 1:2 with linespoints linewidth 1 pointsize 0.8 pointtype point(3) linecolor rgb colour(3) \
         title "delayed and end-to-end"
}
unset multiplot
