# SPDX-License-Identifier: Apache-2.0
# What the gnuplot scripts share: the format that the figure's ending names, and the look of petrapipe/figures/look.py. Expects
#   output_path    the figure, .png, .svg or .pdf
#   width, height  of the figure in pixels of a screen (96 an inch)
ending = output_path[strlen(output_path) - 3:]
if (ending eq ".png") { set terminal pngcairo size width,height font "sans,11" }
if (ending eq ".svg") { set terminal svg size width,height font "sans,15" background "white" }
if (ending eq ".pdf") { set terminal pdfcairo size width / 96.0,height / 96.0 font "sans,11" }
set encoding utf8
set output output_path
set datafile missing "nan"
set grid linetype 1 linecolor rgb "#dddddd"
set border 3
set tics nomirror
array colours[7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
array points[7] = [7, 5, 9, 13, 11, 15, 2]
# Of the i-th curve (from 1): no two of 49 share colour and point, the first 7 neither.
turn(i) = (i - 1) / 7
colour(i) = colours[(i - 1) % 7 + 1]
point(i) = points[(i - 1 + turn(i)) % 7 + 1]
dash(i) = turn(i) % 4 + 1
