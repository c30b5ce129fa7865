# SPDX-License-Identifier: Apache-2.0
# The figure of plot_training.py with gnuplot. gnuplot reads no HDF5: analysis/plot_training_gnuplot makes the columns
# and starts this script with
#   here    the folder of these scripts
#   files   "DIR/0 DIR/1 ...": each with FILE.train (microbatch loss) and FILE.epoch (epoch, train_loss, value)
#   labels  the legend, an array
#   value   what is drawn of an evaluation: eval_top1, or eval_loss if a run is on tokens
#   unit    of losses
#   batches "N0 N1 ...": microbatches per epoch of each run
#   output_path
n = words(files)
width = 1430
height = 560 + 22 * ((n - 1) / 4 + 1)
load here."/plot_common.gp"
room = 0.14 + 22.0 * ((n - 1) / 4 + 1) / height
set multiplot layout 1,2 margins 0.06,0.98,room,0.93 spacing 0.08
set xlabel "epochs trained"
set xrange [0:*]

set title "Training loss (thin: each microbatch; points: mean of each epoch)"
set ylabel "cross-entropy (".unit.")"
set yrange [0:*]
set key at screen 0.5,0.005 center bottom horizontal maxcols 4 noenhanced
plot for [i=1:n] word(files, i).".train" using (($1 + 1) / real(word(batches, i))):2 \
       with lines linecolor rgb "#aa".substr(colour(i), 2, 7) notitle, \
     for [i=1:n] word(files, i).".epoch" using ($1 + 0.5):2 \
       with linespoints linewidth 2 dashtype dash(i) pointtype point(i) linecolor rgb colour(i) title labels[i]

set title (value eq "eval_loss" ? "Loss" : "Accuracy")." on the evaluation set, after each epoch"
set ylabel (value eq "eval_loss" ? "cross-entropy (".unit.")" : "top-1 accuracy (%)")
factor = value eq "eval_loss" ? 1 : 100
set yrange [*:*]
unset key
plot for [i=1:n] word(files, i).".epoch" using ($1 + 1):(factor * $3) \
       with linespoints linewidth 2 dashtype dash(i) pointtype point(i) linecolor rgb colour(i)
unset multiplot
