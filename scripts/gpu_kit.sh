#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_kit.sh FOLDER SOURCES CIFAR: fills the new folder FOLDER with what a machine with a GPU needs to run scripts/gpu_suite.sh:
# programs (those in bundle/, linked to look in $ORIGIN/../lib before anything else) and libraries as one packed file, without those of
# CUDA, which the machine has or gets from PyTorch's packages. CIFAR is the path of the packed images cifar10-jpeg.tar.xz, or empty. KIT_XZ is the
# packing command. Run in the build folder; `make gpu-kit` calls it.
set -eu
[ $# -eq 3 ] || { echo "usage: gpu_kit.sh FOLDER SOURCES CIFAR" >&2; exit 2; }
folder=$1 sources=$2 cifar=$3 pack=$1.pack
programs="petra test_device_backend test_device_training test_device_identities test_device_precision bench_device"

rm -rf "$folder" "$pack"
mkdir -p "$folder" "$pack/bin" "$pack/lib"
for program in $programs; do
  cp "bundle/$program" "$pack/bin/"
  ldd "bundle/$program" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }'
done | sort -u >"$pack/libraries"
strip "$pack"/bin/*
{
  echo "Shared libraries of the kit's programs:"
  while read -r name path; do
    case $name in
      ld-linux* | libc.so.* | libm.so.* | libmvec.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libcuda.so.*) ;;
      libcudart.so.* | libcublas* | libcudnn* | libnvrtc* | libnccl*) echo "  $name: not here: the machine's" ;;
      *)
        cp -L "$path" "$pack/lib/$name"
        echo "  $name"
        ;;
    esac
  done <"$pack/libraries"
  needed=$(for file in "$pack"/bin/* "$pack"/lib/*; do readelf -V "$file" 2>/dev/null; done | grep -o 'GLIBC_[0-9][0-9.]*' | sort -u -t_ -k2 -V | tail -n 1)
  echo "C library (glibc) needed: ${needed#GLIBC_} or newer"
} >"$pack/LIBRARIES"
rm "$pack/libraries"
cp "$sources/bench/peer_pytorch_tick.py" "$pack/"
# The programs one after another: they are alike, and the packer's window has room for two of them.
# shellcheck disable=SC2086
(cd "$pack" && tar --owner=0 --group=0 --numeric-owner -cf - LIBRARIES peer_pytorch_tick.py bin lib) | ${KIT_XZ:-xz -6} >"$folder/kit.tar.xz"
rm -rf "$pack"
cp "$sources/scripts/gpu_suite.sh" "$folder/"
if [ -n "$cifar" ]; then
  cp "$cifar" "$folder/cifar10-jpeg.tar.xz"
  chmod u+w "$folder/cifar10-jpeg.tar.xz"
fi
bytes=$(cat "$folder"/* | wc -c)
echo "gpu-kit: $folder, $((bytes / 1048576)).$((bytes % 1048576 * 10 / 1048576)) MiB"
