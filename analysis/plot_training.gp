# The figure of plot_training.py with gnuplot. gnuplot reads no HDF5: analysis/plot_training_gnuplot makes the columns
# and starts this script with
#   files   "DIR/0 DIR/1 ...": each with FILE.train (microbatch loss) and FILE.epoch (epoch train_loss eval_top1)
#   labels  the legend, one word a run
#   batches "N0 N1 ...": microbatches per epoch of each run
#   output_path
set terminal pngcairo size 1430,570 font "sans,11"
set output output_path
set datafile missing "nan"
set multiplot layout 1,2
set key top right noopaque
set grid linecolor rgb "#dddddd"
set border 3
set tics nomirror
set xlabel "training time (epochs)"
set xrange [0:*]
array colour[7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
rgb(i) = colour[(i - 1) % 7 + 1]
n = words(files)

set title "Training loss (thin: each microbatch; points: mean of each epoch)"
set ylabel "cross-entropy (nats per image)"
set yrange [0:*]
plot for [i=1:n] word(files, i).".train" using (($1 + 1) / real(word(batches, i))):2 \
       with lines linecolor rgb "#55".substr(rgb(i), 2, 7) notitle, \
     for [i=1:n] word(files, i).".epoch" using ($1 + 0.5):2 \
       with linespoints linewidth 2 pointtype 5 + 2 * i linecolor rgb rgb(i) title word(labels, i)

set title "Accuracy on the evaluation set, after each epoch"
set ylabel "top-1 accuracy (%)"
set yrange [*:*]
set key bottom right
plot for [i=1:n] word(files, i).".epoch" using ($1 + 1):(100 * $3) \
       with linespoints linewidth 2 pointtype 5 + 2 * i linecolor rgb rgb(i) title word(labels, i)
unset multiplot
