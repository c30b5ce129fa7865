#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_kit.sh FOLDER SOURCES CIFAR: fills the new folder FOLDER with what a machine with a GPU needs to run scripts/gpu_suite.sh:
# programs and libraries as one packed file, without those of CUDA, which the machine has or gets from PyTorch's packages.
# CIFAR: the packed images cifar10-jpeg.tar.xz to take along, or nothing. Run in the build folder; `make gpu-kit` calls it.
set -eu
[ $# -eq 3 ] || { echo "usage: gpu_kit.sh FOLDER SOURCES CIFAR" >&2; exit 2; }
folder=$1 sources=$2 cifar=$3
bundle=$folder.bundle
programs="tests/test_device_backend tests/test_device_training tests/test_device_identities tests/test_device_precision tests/cuda_plans bench/bench_device"

rm -rf "$folder" "$bundle"
sh "$sources/scripts/bundle.sh" "$bundle" bundle/petra "$sources" no
mkdir -p "$folder/pack/bin" "$folder/pack/lib" "$folder/pack/cuda_host"
cp "$bundle/bin/petra" "$folder/pack/bin/"
cp "$bundle"/lib/* "$folder/pack/lib/"
cp "$bundle/LIBRARIES" "$folder/pack/"
rm -rf "$bundle"
for program in $programs; do
  [ -x "$program" ] || { echo "gpu-kit: $program is not built: it needs a build with CUDA (./configure --with-cuda)" >&2; exit 1; }
  cp "$program" "$folder/pack/bin/"
  # What the tests need beside petra's own: Check, and what that needs.
  ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | while read -r name path; do
    case $name in
      ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libcuda.so.* | libcudart.so.* | libcublas* | libcudnn* | libnvrtc* | libnccl*) continue ;;
    esac
    [ -e "$folder/pack/lib/$name" ] || cp -L "$path" "$folder/pack/lib/$name"
  done
done
strip --strip-debug "$folder"/pack/bin/* 2>/dev/null || true
cp "$sources"/tests/cuda_host/deviceprop-*.json "$folder/pack/cuda_host/"
cp "$sources/bench/peer_pytorch_tick.py" "$folder/pack/"
tar -czf "$folder/kit.tar.gz" -C "$folder/pack" .
rm -rf "$folder/pack"
cp "$sources/scripts/gpu_suite.sh" "$folder/"
if [ -n "$cifar" ]; then
  cp "$cifar" "$folder/"
  chmod u+w "$folder/${cifar##*/}"
fi
bytes=$(cat "$folder"/* | wc -c)
echo "gpu-kit: $folder, $((bytes / 1048576)).$((bytes % 1048576 * 10 / 1048576)) MiB"
