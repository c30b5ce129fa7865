#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bundle.sh FOLDER PROGRAM SOURCES CUDA: fills the new folder FOLDER with what a Linux machine without our libraries needs:
# bin/petra (PROGRAM, linked to look in $ORIGIN/../lib before anything else), lib/ with every shared library that it needs but
# the C library's own, analysis/, scripts/get_data, licenses/, and LIBRARIES, which names all of them. CUDA: yes, or no to leave CUDA's, cuDNN's
# and cuBLAS's libraries to the machine. `make bundle` calls it.
set -eu
[ $# -eq 4 ] || { echo "usage: bundle.sh FOLDER PROGRAM SOURCES yes|no" >&2; exit 2; }
folder=$1 program=$2 sources=$3 cuda=$4

die() {
  printf 'bundle: %s\n' "$*" >&2
  exit 1
}

case $cuda in yes | no) ;; *) die "BUNDLE_CUDA=$cuda: expected yes or no" ;; esac
[ ! -e "$folder" ] || die "$folder is there already"

# Never bundled: the C library with its loader, which must fit the kernel and each other, and the driver.
is_system() {
  case $1 in
    linux-vdso.so.* | ld-linux*.so.* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.*) return 0 ;;
    libresolv.so.* | libutil.so.* | libnsl.so.* | libanl.so.* | libmvec.so.* | libcuda.so.* | libnvidia-*) return 0 ;;
  esac
  return 1
}

is_cuda() {
  case $1 in
    libcudart.so.* | libcublas.so.* | libcublasLt.so.* | libcudnn*.so.* | libnvrtc*.so.* | libnccl.so.*) return 0 ;;
  esac
  return 1
}

# Prints FILE's libraries as "name path", including those that it opens while it runs: cuDNN opens its parts, cuDNN and cuBLAS open NVRTC.
libraries_of() {
  ldd "$1" >"$work/ldd" 2>&1 || die "ldd $1: $(cat "$work/ldd")"
  if grep 'not found' "$work/ldd" | grep -v '^[[:space:]]*libcuda\.so' >&2; then
    die "$1: libraries (above) that are not there"
  fi
  awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' "$work/ldd"
  sed -n 's/^[[:space:]]*libcudnn\.so\.[0-9]* => \(.*\)\/[^/]* (.*/\1/p' "$work/ldd" | while read -r beside; do
    for part in "$beside"/libcudnn_*.so.[0-9] "$beside"/libcudnn_*.so.[0-9][0-9]; do
      [ ! -e "$part" ] || echo "${part##*/} $part"
    done
  done
  sed -n 's/^[[:space:]]*libcublas\.so\.[0-9]* => \(.*\)\/[^/]* (.*/\1/p' "$work/ldd" | while read -r beside; do
    for part in "$beside"/libnvrtc.so.[0-9][0-9] "$beside"/libnvrtc-builtins.so.[0-9]*.[0-9]; do
      [ ! -e "$part" ] || echo "${part##*/} $part"
    done
  done
}

# Prints the files with a library's licence: Debian's copyright file, or CUDA's EULA in the toolkit or in a wheel.
licenses_of() {
  real=$(readlink -f "$1")
  package=$(awk -v path="$1" -v real="$real" '$2 == path || $2 == real || $2 == "/usr" path || "/usr" $2 == real {
    sub(/[:,].*/, "", $1); print $1; exit }' "$work/packages")
  if [ -n "$package" ]; then
    file=/usr/share/doc/$package/copyright
    [ ! -f "$file" ] || printf '%s %s\n' "$package" "$file"
  else
    top=${real%/*}/..
    case ${real##*/} in
      libcudnn*) what=nvidia_cudnn ;;
      libcublas*) what=nvidia_cublas ;;
      libcudart*) what=nvidia_cuda_runtime ;;
      libnvrtc*) what=nvidia_cuda_nvrtc ;;
      libnccl*) what=nvidia_nccl ;;
      *) what=none ;;
    esac
    for file in "$top"/EULA.txt "$top"/dist-info/"$what"*/licenses/License.txt "$top"/dist-info/"$what"*/License.txt; do
      [ ! -f "$file" ] || { printf '%s %s\n' "$what" "$file"; break; }
    done
  fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder/bin" "$folder/lib" "$folder/licenses"
cp "$program" "$folder/bin/petra"
mkdir "$folder/analysis"
cp "$sources"/analysis/*.py "$sources"/analysis/*_gnuplot "$sources"/analysis/*.gp "$sources"/analysis/*.sh "$folder/analysis/"
for part in petrapipe petrapipe/commands petrapipe/figures petrapipe/report petrapipe/sweep; do
  mkdir "$folder/analysis/$part"
  cp "$sources/analysis/$part"/*.py "$folder/analysis/$part/"
done
cp "$sources"/analysis/petrapipe/report/page.* "$folder/analysis/petrapipe/report/"
mkdir "$folder/scripts"
cp "$sources/scripts/get_data" "$folder/scripts/"
cp "$sources/README.md" "$sources/NEWS.md" "$folder/"

# The libraries of the program, then those of the libraries opened at run time, until nothing new is found.
libraries_of "$program" | sort -u >"$work/todo"
: >"$work/all"
while [ -s "$work/todo" ]; do
  sort -u "$work/all" "$work/todo" | awk '!seen[$1]++' >"$work/next"
  mv "$work/next" "$work/all"
  while read -r name path; do
    is_system "$name" || case $name in libcudnn_* | libnvrtc*) libraries_of "$path" ;; esac
  done <"$work/todo" >"$work/found"
  sort -u "$work/found" | awk 'NR == FNR { seen[$1]; next } !($1 in seen)' "$work/all" - >"$work/todo"
done

# One query for all files, because each query takes long. Each line is "package:architecture: path". /lib and /usr/lib may be one folder.
while read -r name path; do
  real=$(readlink -f "$path")
  printf '%s\n' "$path" "$real" "/usr$path" "${real#/usr}"
done <"$work/all" | sort -u | xargs dpkg-query -S >"$work/packages" 2>/dev/null || true

{
  echo "Shared libraries that petra needs beyond the C library (name, where it came from, licence):"
  while read -r name path; do
    is_system "$name" && continue
    if [ "$cuda" = no ] && is_cuda "$name"; then
      echo "  $name  not here: this machine's (module load cuda, or LD_LIBRARY_PATH)"
      continue
    fi
    cp -L "$path" "$folder/lib/$name"
    chmod 755 "$folder/lib/$name"
    licenses_of "$path" >"$work/licenses"
    if read -r package file <"$work/licenses"; then
      cp -L "$file" "$folder/licenses/$package"
      echo "  $name  $path  licenses/$package"
    else
      echo "  $name  $path  no licence file was found beside it"
    fi
  done <"$work/all"
  # Versions of the C library's symbols: the machine needs at least the maximum version in use.
  needed=$(for file in "$folder"/bin/petra "$folder"/lib/*; do readelf -V "$file" 2>/dev/null; done |
    grep -o 'GLIBC_[0-9][0-9.]*' | sort -t_ -k2 -V | tail -n 1)
  echo "C library (glibc) needed: ${needed#GLIBC_} or newer"
} >"$folder/LIBRARIES"
