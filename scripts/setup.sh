# SPDX-License-Identifier: Apache-2.0
# Shell functions that ./quickstart, ./check and .ci/run share. Sourced with the repository root as current folder; POSIX sh.

# Debian's own Python comes first, because the packages install h5py and matplotlib for it. Another python3 may come first on PATH.
if [ -x /usr/bin/python3 ]; then PYTHON=/usr/bin/python3; else PYTHON=python3; fi
export PYTHON

say() {
  printf '== %s\n' "$*"
}

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

now() {
  date +%s
}

# Prints the number of jobs for make: the cores that this process may use.
jobs_count() {
  nproc 2>/dev/null || echo 2
}

# Tests run with one more job, because the longest tests have several processes that mostly wait and sleep.
test_jobs_count() {
  echo $(($(jobs_count) + 1))
}

# Prints a new folder in memory, if there is room for the files of tests and programs can be run there; otherwise nothing. petra waits for
# the disk (fsync) dozens of times in a run of half a second, which takes half of the time.
memory_folder() {
  free_kib=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
  [ "${free_kib:-0}" -ge 4000000 ] || return 0
  in_memory=$(mktemp -d /dev/shm/petra-XXXXXX) || return 0
  printf '#!/bin/sh\n' >"$in_memory/try" && chmod +x "$in_memory/try"
  if "$in_memory/try" 2>/dev/null; then
    rm "$in_memory/try"
    echo "$in_memory"
  else
    rm -r "$in_memory"
  fi
}

# packages_wanted [quickstart]: all packages, or those that ./quickstart needs.
packages_wanted() {
  if [ "${1:-}" = quickstart ]; then
    sed '/^# to test/,$d' packages.debian
  else
    cat packages.debian
  fi | sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d'
}

# Prints the wanted packages that are not installed, on one line.
packages_missing() {
  for package in $(packages_wanted "$@"); do
    case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
      installed) ;;
      *) printf '%s ' "$package" ;;
    esac
  done
}

# packages_install [quickstart]: installs what is missing, as root or by a sudo that asks for no password; otherwise prints the one line that does it.
packages_install() {
  if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    say "not a Debian system: packages are not checked; packages.debian lists what is needed"
    return 0
  fi
  missing=$(packages_missing "$@")
  missing=${missing% }
  if [ -z "$missing" ]; then
    say "all packages are installed"
    return 0
  fi
  if [ "$(id -u)" -eq 0 ]; then
    as_root=
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
  else
    printf '%s: packages are missing. Run this line, then %s again:\n' "${0##*/}" "$0" >&2
    printf 'sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' "$missing" >&2
    exit 1
  fi
  say "installing: $missing"
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >build-packages.log 2>&1 ||
    say "apt-get update reported a problem (build-packages.log); going on with the lists that there are"
  # One word a package.
  # shellcheck disable=SC2086
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing \
    >>build-packages.log 2>&1 ||
    { tail -n 5 build-packages.log >&2; die "apt-get could not install all of: $missing (build-packages.log)"; }
  rm -f build-packages.log
  packages_installed=yes
}

# The versions that tests/check_python_style wants: others lay out, or find, something else.
RUFF_VERSION=0.17.6
MYPY_VERSION=2.4.1

# python_packages FOLDER: installs what tests need and Debian 12 lacks, unless $PYTHON has it. tests/cli/python adds the folder to
# PYTHONPATH. The tests that need a package are skipped if it cannot be installed.
python_packages() {
  PYTHONPATH=$1 "$PYTHON" -c 'import safetensors' 2>/dev/null ||
    pip_install "$1" --no-deps 'safetensors>=0.4'
  case $("$1/bin/ruff" --version 2>/dev/null) in
    "ruff $RUFF_VERSION") ;;
    *) pip_install "$1" --upgrade "ruff==$RUFF_VERSION" "mypy==$MYPY_VERSION" ;;
  esac
}

# pip_install FOLDER OPTION REQUIREMENT...
pip_install() {
  folder=$1
  shift
  say "installing in $folder: $*"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --retries 1 --timeout 10 --only-binary :all: \
    --target "$folder" "$@" >"$folder.log" 2>&1 ||
    say "pip could not install them ($folder.log): the tests that need them are skipped"
}

# run_logged LOG COMMAND...: runs it with its output in LOG; shows the end of it if it fails.
run_logged() {
  log=$1
  shift
  "$@" >"$log" 2>&1 && return 0
  tail -n 30 "$log" >&2
  die "failed: $* (all of its output: $log)"
}

# build_plain FOLDER [CONFIGURE-OPTION...]: configures once, and again after packages were installed, then builds, in a folder
# of its own.
build_plain() {
  folder=$1
  shift
  mkdir -p "$folder"
  [ -x configure ] && [ -f sources.mk ] || run_logged "$folder/bootstrap.log" ./bootstrap
  if [ ! -f "$folder/config.status" ] || [ -n "${packages_installed:-}" ]; then
    say "configuring in $folder"
    (cd "$folder" && run_logged configure.log ../configure "$@") || exit 1
  fi
  say "building in $folder"
  run_logged "$folder/make.log" make -C "$folder" -j"$(jobs_count)"
}
