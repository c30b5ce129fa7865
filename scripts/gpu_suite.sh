#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_suite.sh: everything that has to be seen on a machine with a GPU, within nine minutes: device tests, compute-sanitizer,
# bench_device and the same tick in PyTorch, one epoch of RevNet-18 in three precisions. Lies in a folder made by `make
# gpu-kit`, from which it takes the programs; needs CUDA's run time, cuDNN and cuBLAS of the major versions that petra was built with (pack's
# LIBRARIES names them), which it looks for in the machine's CUDA and in pip's packages (a Python with PyTorch for that CUDA has them). Results go to $OUT, else ./gpu-results; summary.txt has a line a step.
#
# GPU_SUITE_STEPS="info tests ..." runs some of: info tests sanitizer bench pytorch train. GPU_SUITE_SMALL=yes: sizes that try the
# script alone, without a GPU as well. GPU_SUITE_SECONDS: for all steps together (520). A step that fails stops no other; exit status
# 1 if any failed. PYTHON: the Python to ask (python3).
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-gpu-results}
steps=${GPU_SUITE_STEPS:-info tests sanitizer bench pytorch train}
small=${GPU_SUITE_SMALL:-no}
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
summary=$out/summary.txt
: >"$summary"
failed=0
end=$(($(date +%s) + ${GPU_SUITE_SECONDS:-520}))

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xzf "$here/kit.tar.gz" -C "$work" || { echo "gpu-suite: $here/kit.tar.gz cannot be unpacked" >&2; exit 1; }

# The folders of CUDA's libraries: the machine's first, so that cuDNN and cuBLAS fit its driver; then pip's.
cuda_folders() {
  for folder in ${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda/lib64 /usr/local/cuda/compat /usr/lib/x86_64-linux-gnu; do
    for file in "$folder"/libcudart.so.* "$folder"/libcudnn.so.* "$folder"/libcublas.so.*; do
      [ ! -e "$file" ] || { echo "$folder"; break; }
    done
  done
  "$python" - 2>/dev/null <<'END'
import glob, os, site, sys
seen = []
for top in [*sys.path, *site.getsitepackages(), site.getusersitepackages()]:
    for folder in sorted(glob.glob(os.path.join(top or ".", "nvidia", "*", "lib"))) + [os.path.join(top or ".", "torch", "lib")]:
        if glob.glob(os.path.join(folder, "*.so*")) and folder not in seen:
            seen.append(folder)
print("\n".join(seen))
END
}
# The system's folder alone must not go before the kit's: what is in lib/ is found first.
libraries=$work/lib$(cuda_folders | while read -r folder; do printf ':%s' "$folder"; done)
petra=$work/bin/petra
# Only for our own programs: another's Python or tar must not get these libraries.
own() {
  env LD_LIBRARY_PATH="$libraries" CK_FORK=no srcdir="$work/source" "$@"
}
# What the tests look for below tests/ of the source tree.
mkdir -p "$work/source/tests" && ln -s "$work/cuda_host" "$work/source/tests/cuda_host"

# step NAME SECONDS COMMAND...: its output in NAME.log, a line in the summary. Exit status 77 is "skipped".
step() {
  name=$1 seconds=$2
  shift 2
  left=$((end - $(date +%s)))
  if [ "$left" -lt 5 ]; then
    echo "$name: left out: no time is left" | tee -a "$summary"
    failed=1
    return
  fi
  [ "$seconds" -le "$left" ] || seconds=$left
  begin=$(date +%s)
  (cd "$work" && own timeout -k 5 "$seconds" "$@") >"$out/$name.log" 2>&1 </dev/null
  status=$?
  took=$(($(date +%s) - begin))
  case $status in
    0) word=passed ;;
    77) word=skipped ;;
    124 | 137) word="FAILED: not over after $seconds s"; failed=1 ;;
    127) word="FAILED: does not start, see $name.log"; failed=1 ;;
    *) word="FAILED with $status"; failed=1 ;;
  esac
  echo "$name: $word ($took s)" | tee -a "$summary"
}

skip() {
  echo "$1: skipped: $2" | tee -a "$summary"
}

wants() {
  case " $steps " in *" $1 "*) return 0 ;; esac
  return 1
}

# small VALUE-WHEN-SMALL VALUE
pick() {
  if [ "$small" = yes ]; then echo "$1"; else echo "$2"; fi
}

backend=$(pick cpu cuda)

if wants info; then
  step info 20 "$petra" info
  if command -v nvidia-smi >/dev/null 2>&1; then step nvidia-smi 20 nvidia-smi; else skip nvidia-smi "not there"; fi
  grep -h . "$out/info.log" >>"$summary"
fi

if wants tests; then
  for test in cuda_plans test_device_backend test_device_precision test_device_training test_device_identities; do
    step "$test" 90 "$work/bin/$test"
  done
fi

# A short training, so that every kernel is seen, and the table of cases of all operations.
echo '{}' >"$work/plain.yaml"
tiny="train $work/plain.yaml --quiet --set data.set=shapes --set model.width=4 --set data.batch=4 --set data.limit=64 --set data.eval_limit=16
  --set run.epochs=1 --set run.max_microbatches=14 --set device.backend=$backend"
if wants sanitizer; then
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer 2>/dev/null | head -n 1)
  if [ -z "$sanitizer" ]; then
    skip sanitizer "no compute-sanitizer"
  else
    for tool in memcheck racecheck initcheck; do
      # shellcheck disable=SC2086
      step "$tool-train" 75 "$sanitizer" --tool $tool --error-exitcode 9 "$petra" $tiny --output "$work/out-$tool"
    done
    step memcheck-cases 60 "$sanitizer" --tool memcheck --error-exitcode 9 "$work/bin/test_device_backend"
  fi
fi

if wants bench; then
  if [ "$small" = yes ]; then
    step bench 30 "$work/bin/bench_device" --small --set device.backend=cpu --set model.width=2 --batches 2,4
  else
    for precision in tf32 bf16 fp32; do
      step "bench-$precision" 60 "$work/bin/bench_device" --set device.backend=cuda --set "data.workers=$(($(nproc) > 12 ? 12 : $(nproc)))" \
        --precisions $precision --batches 64,256 --graphs on,off
    done
  fi
  cat "$out"/bench*.log | grep -E '^(device|loader|tick|ceiling|sum|failed)/' >>"$summary"
fi

if wants pytorch; then
  if "$python" -c 'import torch' 2>/dev/null; then
    # PyTorch finds its own libraries.
    arguments=$(pick "--device cpu --width 16 --batches 2 --ticks 2 --blocks 2 --warmup 2 --precisions fp32" "--device cuda")
    # shellcheck disable=SC2086
    step pytorch 90 env -u LD_LIBRARY_PATH "$python" -B "$work/peer_pytorch_tick.py" $arguments
    grep '^pytorch/' "$out/pytorch.log" >>"$summary"
  else
    skip pytorch "$python has no PyTorch"
  fi
fi

# cifar10-jpeg.tar.xz, if it is in the kit: a folder of images a class, in train and test.
unpack_cifar() {
  [ -f "$here/cifar10-jpeg.tar.xz" ] || return 1
  "$python" - "$here/cifar10-jpeg.tar.xz" "$work/cifar" <<'END'
import os, sys, tarfile
source, target = sys.argv[1:]
with tarfile.open(source) as tar:
    for member in tar:
        if member.isfile() and member.name.endswith(".jpg"):
            split, name, file = member.name.split("/")
            folder = os.path.join(target, {"test": "val"}.get(split, split), name)
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, os.path.basename(file)), "wb") as out:
                out.write(tar.extractfile(member).read())
END
}

if wants train; then
  if [ "$small" = yes ]; then
    # shellcheck disable=SC2086
    step train 30 "$petra" $tiny --output "$out/train"
  elif unpack_cifar 2>"$out/unpack.log"; then
    # Once from JPEG to a file of records; then as data.set: hdf5.
    echo "data: {set: imagefolder, path: $work/cifar, image_size: 32, resize: 32, workers: 8}" >"$work/cifar.yaml"
    step convert 90 "$petra" data convert "$work/cifar.yaml" --quiet --output "$work/cifar.h5"
    for precision in tf32 bf16 fp32; do
      step "train-$precision" 60 "$petra" train "$work/plain.yaml" --output "$out/train-$precision" --set data.set=hdf5 --set "data.path=$work/cifar.h5" \
        --set 'data.augment=[crop,flip]' --set data.batch=64 --set data.workers=8 --set model.width=64 --set run.epochs=1 --set optim.lr=0.1 \
        --set optim.lr_scaling=goyal --set device.backend=cuda --set device.precision=$precision
      tail -n 3 "$out/train-$precision.log" >>"$summary"
    done
  else
    skip train "no cifar10-jpeg.tar.xz beside gpu_suite.sh (unpack.log)"
  fi
fi

echo "gpu-suite: results in $out"
exit $failed
