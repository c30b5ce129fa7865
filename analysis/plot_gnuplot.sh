# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What the plot_*_gnuplot scripts share; they read it with `.`. Sets $here (their folder) and $folder (a temporary one, removed at the
# end), and checks that h5dump and gnuplot are there.
# shellcheck disable=SC2034 # for those who read this file
here=$(dirname "$0")

# shown TEXT [CODES]: a free text (a name of a file or a run) as petrapipe/text.py shows it: on one line, in which each byte of a character that could disturb
# a terminal, and each byte that is not UTF-8, is \x1b; so is each of a character of these codes.
shown() {
  printf %s "$1" | od -An -v -tu1 | LC_ALL=C awk -v codes="${2:-}" '
    BEGIN { split(codes, list, " "); for (i in list) absent[list[i]] }
    function decode(  c, i) {
      c = byte[at]; used = 1; code = c
      if (c < 128) return 1
      count = c >= 248 ? 0 : c >= 240 ? 4 : c >= 224 ? 3 : c >= 192 ? 2 : 0
      if (!count) return 0
      code = c - (count == 4 ? 240 : count == 3 ? 224 : 192)
      for (i = 1; i < count; i++) {
        if (at + i >= n || byte[at + i] < 128 || byte[at + i] > 191) return 0
        code = 64 * code + byte[at + i] - 128
      }
      if (code < (count == 4 ? 65536 : count == 3 ? 2048 : 128) || code > 1114111 || (code >= 55296 && code <= 57343)) return 0
      used = count
      return 1
    }
    function plain() {
      return !(code < 32 || (code >= 127 && code <= 159) || code == 1564 || code == 8206 || code == 8207 || code == 65279 || code == 65534 ||
               code == 65535 || sprintf("%x", code) in absent || (code >= 8232 && code <= 8238) || (code >= 8294 && code <= 8297))
    }
    { for (i = 1; i <= NF; i++) byte[n++] = $i }
    END {
      for (at = 0; at < n; at += used) {
        ok = decode() && plain()
        for (i = 0; i < used; i++) printf ok ? "%c" : "\\x%02x", byte[at + i]
      }
    }'
}

# drawable TEXT: as it is shown, without characters that no font here has: gnuplot draws their boxes larger than the figure.
drawable() {
  missing=''
  if command -v fc-list >/dev/null && command -v iconv >/dev/null; then
    for code in $(shown "$1" | iconv -f UTF-8 -t UTF-32BE | od -An -v -w4 -tx1 | tr -d ' ' | sed 's/^0*//' | sort -u); do
      [ ${#code} -lt 3 ] || [ -n "$(fc-list ":charset=$code" family)" ] || missing="$missing $code"
    done
  fi
  shown "$1" "$missing"
}

# quoted TEXT: as a string of gnuplot.
quoted() {
  printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"
}

# fail STATUS TEXT: one line; 2 if what was given is wrong, 1 if something is missing here.
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$(shown "$2")" >&2
  exit "$1"
}

# check_figures FIGURE...: plot_common.gp draws what these endings say.
check_figures() {
  for path in "$@"; do
    case $path in
      *"
"*) fail 2 "$path: cannot be drawn; expected a name without a line break" ;;
      *.png | *.svg | *.pdf) ;;
      *) fail 2 "$path: cannot be drawn; expected a name that ends in .png, .svg, .pdf" ;;
    esac
  done
}

# run_path PLACE: the log of a run, itself or that in its folder.
run_path() {
  case $1 in -*) set -- "./$1" ;; esac # h5dump would take it as an option
  if [ -d "$1" ]; then printf '%s/run.h5\n' "$1"; else printf '%s\n' "$1"; fi
}

# is_on_tokens RUN.h5: whether its losses are of tokens, not of images.
is_on_tokens() {
  h5dump -H -d /epoch/tokens_per_s "$1" >/dev/null 2>&1
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
