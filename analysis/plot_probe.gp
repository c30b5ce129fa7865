# The figures of plot_probe.py with gnuplot. gnuplot reads no HDF5: analysis/plot_probe_gnuplot makes the columns and starts this
# script with
#   folder   with MEASURE.PAIR (epoch, then a mean for each stage) and by_stage.EPOCH.PAIR (stage cosine)
#   stages   J
#   epochs   "E E E E": those of figure 6
#   window   epochs of the running mean in figure 5
#   figure_5, figure_6
set terminal pngcairo size 1430,960 font "sans,11"
set datafile missing "nan"
set grid linecolor rgb "#dddddd"
set border 3
set tics nomirror
set palette defined (0 "#440154", 0.25 "#3b528b", 0.5 "#21918c", 0.75 "#5ec962", 1 "#fde725")
set cbrange [0.5:stages + 0.5]

# Running mean over the last `window` points.
array last[window]
n = 0
mean(x) = (n = n + 1, last[(n - 1) % window + 1] = x, sum [i = 1:(n < window ? n : window)] last[i] / (n < window ? n : window))
begin(x) = (n = 0, x)
file(measure, pair) = folder."/".measure.".".pair

set output figure_5
set multiplot layout 2,2
set xlabel "training time (epochs)"
unset key
set colorbox
set cblabel "stage"
set cbtics 1
do for [panel = 1:4] {
  measure = panel <= 2 ? "cosine" : "norm_ratio"
  set ylabel (panel <= 2 ? "cosine (1)" : "norm ratio (1)")
  if (panel == 1) { set title "(a) cosine, method and delayed" }
  if (panel == 2) { set title "(b) cosine with end-to-end" }
  if (panel == 3) { set title "(c) norm ratio, method over delayed" }
  if (panel == 4) { set title "(d) norm ratio over end-to-end" }
  if (panel % 2 == 1) {
    unset key
    plot for [j = 1:stages] file(measure, "method_delayed") using ($0 == 0 ? begin($1) : $1):(mean(column(j + 1))) \
           with lines linewidth 1.5 linecolor palette cb j notitle
  } else {
    set key bottom right noopaque
    plot for [j = 1:stages] file(measure, "method_end_to_end") using ($0 == 0 ? begin($1) : $1):(mean(column(j + 1))) \
           with lines linewidth 1.5 linecolor palette cb j notitle, \
         for [j = 1:stages] file(measure, "delayed_end_to_end") using ($0 == 0 ? begin($1) : $1):(mean(column(j + 1))) \
           with lines linewidth 1.5 dashtype 2 linecolor palette cb j notitle, \
         NaN with lines linecolor rgb "black" title "method", \
         NaN with lines linecolor rgb "black" dashtype 2 title "delayed gradient"
  }
}
unset multiplot

set output figure_6
set multiplot layout 2,2
set xlabel "stage"
set ylabel "cosine (1)"
set xtics 1
set xrange [0.5:stages + 0.5]
set key bottom right noopaque
by_stage(epoch, pair) = folder."/by_stage.".epoch.".".pair
do for [e in epochs] {
  set title "epoch ".e
  plot by_stage(e, "method_delayed") using 1:2 with linespoints linewidth 2 pointtype 7 linecolor rgb "#0072b2" title "method, delayed", \
       by_stage(e, "method_end_to_end") using 1:2 with linespoints linewidth 2 pointtype 5 linecolor rgb "#d55e00" title "method, end-to-end", \
       by_stage(e, "delayed_end_to_end") using 1:2 with linespoints linewidth 2 pointtype 9 linecolor rgb "#009e73" title "delayed, end-to-end"
}
unset multiplot
