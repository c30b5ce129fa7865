#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_suite.sh tests and measures on a machine with a GPU, in calls of less than nine minutes. It is in a folder made by `make gpu-kit`,
# from which it takes the programs. It needs CUDA's run time, cuDNN and cuBLAS of the major versions that petra was built with (LIBRARIES in
# the kit names them), which it looks for in LD_LIBRARY_PATH, the machine's CUDA and pip's packages (a Python with PyTorch for that CUDA has
# them).
#
#   gpu_suite.sh                                             info ticks pytorch tests: bench_device's ticks, PyTorch's beside them, device tests
#   GPU_SUITE_STEPS="operations sanitizer" gpu_suite.sh      each operation alone; compute-sanitizer, of its slow tools our kernels alone
#   GPU_SUITE_STEPS=train gpu_suite.sh                       one epoch of RevNet-18 on CIFAR-10 in three precisions
#
# Results go to the folder $OUT (gpu-results) and replace those of an earlier call. summary.txt has one line per completed step, and figures as
# they come. results.tar.gz has logs and run folders without weights; it is renewed after each group of steps and at the end, also after a signal.
# Nothing else is written there. The exit status is 1 if a step failed or, with a GPU, if a step was skipped. A failed step
# stops no other step, and each step has a limit of its own.
#
# GPU_SUITE_STEPS: some of info ticks pytorch tests operations sanitizer train, run in this order; or all. GPU_SUITE_SECONDS: limit of a whole
# call (520). GPU_SUITE_LIMIT: limit of each step. GPU_SUITE_CIFAR: the packed images, train/CLASS/*.jpg and test/CLASS/*.jpg
# (cifar10-jpeg.tar.xz beside this script). GPU_SUITE_DEVICE: a file that exists if there is a GPU (/dev/nvidia0). GPU_SUITE_SMALL=yes: sizes
# that only try the script, on the CPU. PYTHON: the Python to use (python3).
set -u
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
export PATH
here=$(cd "$(dirname "$0")" && pwd)
known="info ticks pytorch tests operations sanitizer train"
steps=${GPU_SUITE_STEPS:-info ticks pytorch tests}
[ "$steps" != all ] || steps=$known
small=${GPU_SUITE_SMALL:-no}
python=${PYTHON:-python3}
device=${GPU_SUITE_DEVICE:-/dev/nvidia0}
total=${GPU_SUITE_SECONDS:-520}
started=$(date +%s)
end=$((started + total))
for word in $steps; do
  case " $known " in
    *" $word "*) ;;
    *) echo "gpu-suite: GPU_SUITE_STEPS: '$word': expected some of $known" >&2; exit 2 ;;
  esac
done

out=${OUT:-gpu-results}
if ! { mkdir -p "$out" && out=$(cd "$out" && pwd) && : >"$out/summary.txt"; }; then
  echo "gpu-suite: $out cannot be written" >&2
  exit 1
fi
rm -f "$out/results.tar.gz"
summary=$out/summary.txt
failures=0
child=
name=start
work=

say() {
  printf '%s\n' "$*" | tee -a "$summary"
}

fail() {
  say "$1: FAILED: $2"
  failures=$((failures + 1))
}

skip() {
  if [ -e "$device" ]; then fail "$1" "skipped, though $device is there: $2"; else say "$1: skipped: $2"; fi
}

# Packs all results except weights; a log that is too long loses its middle.
FILE_BYTES=16777216
large=
pack() {
  for log in "$work"/results/*.log; do
    if [ ! -f "$log" ] || [ "$(wc -c <"$log")" -le 1048576 ]; then continue; fi
    { head -c 524288 "$log"; printf '\n... (left out)\n'; tail -c 524288 "$log"; } >"$work/short" && mv "$work/short" "$log"
  done
  tar -czf "$out/results.part" -C "$work" --exclude='weights*.h5' --exclude='best*.h5' --exclude='checkpoint*' results
  if [ "$(wc -c <"$out/results.part")" -gt $FILE_BYTES ]; then
    [ -n "$large" ] || fail results "of more than $FILE_BYTES bytes packed; the logs alone are in results.tar.gz"
    large=yes
    (cd "$work" && tar -czf "$out/results.part" results/*.log)
  fi
  mv "$out/results.part" "$out/results.tar.gz"
}

# shellcheck disable=SC2317 # by the trap
finish() {
  trap '' HUP INT TERM
  [ -z "$child" ] || kill "$child" 2>/dev/null
  if [ -n "$work" ]; then
    pack
    rm -rf "$work"
  fi
  say "gpu-suite: $failures failed, $(($(date +%s) - started)) of $total s"
  [ "$failures" -eq 0 ] || exit 1
}

# shellcheck disable=SC2317
stopped() {
  trap '' HUP INT TERM
  fail "$name" "ended by a signal, after $(($(date +%s) - started)) s of the whole"
  exit 1
}
trap finish EXIT
trap stopped HUP INT TERM

work=$(mktemp -d) || { fail start "no scratch folder (TMPDIR)"; exit 1; }
mkdir "$work/results"

# unpack ARCHIVE FOLDER, where there is no xz as well
unpack() {
  mkdir -p "$2"
  if command -v xz >/dev/null 2>&1; then
    timeout 100 tar -xJf "$1" -C "$2"
  else
    timeout 100 "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$2"
  fi
}
unpack "$here/kit.tar.xz" "$work" 2>"$work/results/kit.log" || { fail start "$here/kit.tar.xz cannot be unpacked (kit.log)"; exit 1; }

# Prints the folders of CUDA's libraries: the machine's first, so that cuDNN and cuBLAS fit its driver, then pip's.
cuda_folders() {
  for folder in ${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu; do
    for file in "$folder"/libcudart.so.* "$folder"/libcudnn.so.* "$folder"/libcublas.so.*; do
      [ ! -e "$file" ] || { echo "$folder"; break; }
    done
  done
  timeout 20 "$python" - 2>/dev/null <<'END_OF_PYTHON'
import glob, os, site, sys
seen = []
for top in [*sys.path, *site.getsitepackages(), site.getusersitepackages()]:
    for folder in sorted(glob.glob(os.path.join(top or ".", "nvidia", "*", "lib"))) + [os.path.join(top or ".", "torch", "lib")]:
        if glob.glob(os.path.join(folder, "*.so*")) and folder not in seen:
            seen.append(folder)
print("\n".join(seen))
END_OF_PYTHON
}
# An existing value stays first, because only it may lead to the driver. The programs of the kit find its own libraries themselves.
driver=/usr/local/nvidia/lib64
machine=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$driver
libraries=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(cuda_folders | while read -r folder; do [ -z "$folder" ] || printf '%s:' "$folder"; done)$driver
petra=$work/bin/petra

# step NAME SECONDS PATTERN COMMAND...: writes its output to NAME.log. The summary gets lines that match the extended regular expression PATTERN
# as they come, and one line for the whole step. Exit status 77 is "skipped". Returns whether it passed.
step() {
  name=$1 seconds=$2 pattern=$3
  shift 3
  left=$((end - $(date +%s)))
  if [ "$left" -lt 2 ]; then
    fail "$name" "left out: no time is left of $total s"
    return 1
  fi
  [ "$seconds" -le "${GPU_SUITE_LIMIT:-$seconds}" ] || seconds=$GPU_SUITE_LIMIT
  [ "$seconds" -le "$left" ] || seconds=$left
  begin=$(date +%s)
  : >"$work/results/$name.log"
  # Tests print the result of each test, not only at the end.
  (cd "$work" && exec env LD_LIBRARY_PATH="$libraries" CK_FORK=no CK_TAP_LOG_FILE_NAME=- timeout -k 5 "$seconds" "$@") \
    >"$work/results/$name.log" 2>&1 </dev/null &
  child=$!
  follower=
  if [ -n "$pattern" ]; then
    tail -n +1 -s 0.1 --pid=$child -f "$work/results/$name.log" 2>/dev/null | grep -E -m 300 --line-buffered "$pattern" | tee -a "$summary" &
    follower=$!
  fi
  wait $child 2>/dev/null
  status=$?
  child=
  [ -z "$follower" ] || wait $follower
  took=$(($(date +%s) - begin))
  last=$(tail -n 1 "$work/results/$name.log" | cut -c 1-200)
  case $status in
    0)
      say "$name: passed ($took of $seconds s)"
      return 0
      ;;
    77) skip "$name" "it says so: $last" ;;
    126 | 127) fail "$name" "does not start: $last" ;;
    124) fail "$name" "not over after $seconds s" ;;
    137)
      if [ "$took" -ge "$seconds" ]; then fail "$name" "not over after $seconds s, and killed"; else fail "$name" "killed after $took s"; fi
      ;;
    *)
      if [ $status -gt 128 ]; then how="ended by signal $((status - 128))"; else how="exit status $status"; fi
      fail "$name" "$how after $took of $seconds s: $last"
      ;;
  esac
  return 1
}

wants() {
  case " $steps " in *" $1 "*) return 0 ;; esac
  return 1
}

# pick VALUE-WHEN-SMALL VALUE
pick() {
  if [ "$small" = yes ]; then echo "$1"; else echo "$2"; fi
}

backend=$(pick cpu cuda)
# On a few shared cores, waiting threads must not take time from working threads.
if [ "$small" = yes ]; then export OMP_WAIT_POLICY=passive; fi
precisions=$(pick fp32 "tf32 bf16 fp32")
workers=$(nproc)
[ "$workers" -le 12 ] || workers=12

say "gpu-suite: $steps; LD_LIBRARY_PATH=$libraries"
if wants info; then
  step info 10 . "$petra" info
  # shellcheck disable=SC2016
  step libraries 10 'not found' sh -c 'ldd "$1" && ! ldd "$1" | grep -q "not found"' sh "$petra"
  smi=$(command -v nvidia-smi || echo /usr/local/nvidia/bin/nvidia-smi)
  if [ -x "$smi" ]; then step nvidia-smi 10 'Driver|MiB' "$smi"; else skip nvidia-smi "not there"; fi
  pack
fi

# bench GROUP PRECISIONS PATTERN OPTION...
bench() {
  group=$1 chosen=$2 pattern=$3
  shift 3
  for precision in $chosen; do
    # shellcheck disable=SC2046
    step "$group-$precision" 60 "$pattern" "$work/bin/bench_device" --set "device.backend=$backend" --set "data.workers=$workers" --precisions "$precision" \
      $(pick "--small --set model.width=1 --set device.threads=1 --batches 2 --warmup 20" "--batches 64,256") "$@"
  done
  pack
}

if wants ticks; then
  # In fp32 (12 to 20 ms a tick of 64, 45 to 80 of 256 are expected) 401 ticks with graphs and 401 without would take 46 to 80 s, and the host's
  # share is small: with graphs alone.
  bench ticks "$(pick "" "tf32 bf16")" '^(device|loader|tick|failed)/' --no-operations --graphs on,off
  bench ticks fp32 '^(device|loader|tick|failed)/' --no-operations --graphs "$(pick off on)"
fi

if wants pytorch; then
  if timeout 20 "$python" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("torch") is None)' 2>/dev/null; then
    # PyTorch finds its own libraries.
    arguments=$(pick "--device cpu --width 16 --batches 2 --ticks 2 --blocks 2 --warmup 2 --precisions fp32" "--device cuda")
    # shellcheck disable=SC2086
    step pytorch 100 '^pytorch/|Error' env LD_LIBRARY_PATH="$machine" PYTHONUNBUFFERED=1 "$python" -B "$work/peer_pytorch_tick.py" $arguments
  else
    skip pytorch "$python has no PyTorch"
  fi
  pack
fi

if wants tests; then
  for test in backend precision training identities; do
    step "test_device_$test" 45 '^not ok|no_device' "$work/bin/test_device_$test"
  done
  pack
fi

if wants operations; then
  bench operations "$precisions" '^(device|ceiling|sum|failed)/' --no-ticks --graphs "$(pick off on)"
fi

# Runs a short training, which uses every kernel, and the table of cases of all operations.
echo '{}' >"$work/plain.yaml"
tiny="train $work/plain.yaml --quiet --set data.set=shapes --set model.width=4 --set data.batch=4 --set data.limit=64 --set data.eval_limit=16
  --set run.epochs=1 --set run.max_microbatches=14 --set device.backend=$backend"
if wants sanitizer; then
  sanitizer=$(command -v compute-sanitizer)
  for file in /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer; do
    if [ -z "$sanitizer" ] && [ -x "$file" ]; then sanitizer=$file; fi
  done
  if [ -z "$sanitizer" ]; then
    skip sanitizer "no compute-sanitizer"
  else
    # This option selects kernels by a part of their name; it had another name before 2023.
    ours=$(case $(timeout 20 "$sanitizer" --help 2>&1) in *--kernel-regex*) echo --kernel-regex ;; *) echo --kernel-name ;; esac)
    for tool in memcheck racecheck initcheck; do
      # racecheck finds hazards within the kernels of cuBLAS and cuDNN, and takes minutes for them.
      filter=$([ $tool = memcheck ] || echo "$ours kns=cuda_")
      # shellcheck disable=SC2086
      step "$tool-train" 75 '^=+ *[A-Z]' "$sanitizer" --tool $tool --error-exitcode 9 $filter "$petra" $tiny --output "$work/out-$tool"
    done
    step memcheck-cases 75 '^=+ *[A-Z]|^not ok' "$sanitizer" --tool memcheck --error-exitcode 9 "$work/bin/test_device_backend"
  fi
  pack
fi

# Makes a folder of images per class, in train and val.
images() {
  unpack "$1" "$work/images" && mv "$work/images/test" "$work/images/val"
}

if wants train; then
  images=${GPU_SUITE_CIFAR:-$here/cifar10-jpeg.tar.xz}
  if [ "$small" = yes ] && [ -z "${GPU_SUITE_CIFAR:-}" ]; then
    # shellcheck disable=SC2086
    step train 90 '' "$petra" $tiny --output "$work/results/train"
  elif [ ! -f "$images" ]; then
    if [ -n "${GPU_SUITE_CIFAR:-}" ]; then fail train "no images: GPU_SUITE_CIFAR=$images is not there"
    else skip train "no images: no cifar10-jpeg.tar.xz beside gpu_suite.sh, and no GPU_SUITE_CIFAR"; fi
  elif ! images "$images" 2>"$work/results/unpack.log"; then
    fail train "no images: $images cannot be unpacked: $(head -n 1 "$work/results/unpack.log")"
  else
    # The images are converted once from JPEG to a file of records, then read as data.set: hdf5.
    echo "data: {set: imagefolder, path: $work/images, image_size: 32, resize: 32, workers: $workers}" >"$work/images.yaml"
    if step convert 90 '^petra: ' "$petra" data convert "$work/images.yaml" --quiet --output "$work/images.h5"; then
      for precision in $precisions; do
        # shellcheck disable=SC2046
        step "train-$precision" 100 'top1|petra: ' "$petra" train "$work/plain.yaml" --output "$work/results/train-$precision" --set data.set=hdf5 \
          --set "data.path=$work/images.h5" --set 'data.augment=[crop,flip]' --set "data.workers=$workers" --set run.epochs=1 --set optim.lr=0.1 \
          --set optim.lr_scaling=goyal --set "device.backend=$backend" --set "device.precision=$precision" \
          $(pick "--set data.batch=2 --set model.width=1 --set device.threads=1" "--set data.batch=64 --set model.width=64")
      done
    else
      fail train "no images: convert did not pass"
    fi
  fi
fi
exit 0
