# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What the plot_*_gnuplot scripts share; they read it with `.`. Sets $here (their folder) and $folder (a temporary one, removed at the
# end), and checks that h5dump and gnuplot are there.
# shellcheck disable=SC2034 # for those who read this file
here=$(dirname "$0")

# fail STATUS TEXT: one line; 2 where what was given is wrong, 1 where something is missing here.
fail() {
  echo "$(basename "$0"): $2" >&2
  exit "$1"
}

# check_figures FIGURE...: plot_common.gp draws what these endings say.
check_figures() {
  for path in "$@"; do
    case $path in
      *\'*) fail 2 "$path: cannot be drawn; expected a name without '" ;;
      *.png | *.svg | *.pdf) ;;
      *) fail 2 "$path: cannot be drawn; expected a name that ends in .png, .svg, .pdf" ;;
    esac
  done
}

# run_path PLACE: the log of a run, itself or that in its folder.
run_path() {
  if [ -d "$1" ]; then echo "$1/run.h5"; else echo "$1"; fi
}

# column RUN.h5 /GROUP/NAME EXPECTED: one value a line, row by row, in $folder/values.
column() {
  h5dump -d "$2" -y -w 1 -m '%.9g' -o "$folder/column" "$1" >/dev/null 2>"$folder/error" ||
    fail 2 "$1: $2 cannot be read; expected $3: $(tail -n 1 "$folder/error")"
  # h5dump does not end its last line; wc counts ends.
  tr -d ', ' <"$folder/column" | awk 'NF' >"$folder/values"
}

for tool in h5dump gnuplot; do
  command -v "$tool" >/dev/null || fail 1 "$tool is missing (Debian: hdf5-tools gnuplot-nox)"
done
# The program keeps the file open while it writes; a lock would shut readers out.
HDF5_USE_FILE_LOCKING=FALSE
export HDF5_USE_FILE_LOCKING
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
