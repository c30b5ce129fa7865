#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs read_while_running.py with a Python that has h5py; skipped (77) where there is none.
for python in "${PYTHON:-python3}" /usr/bin/python3; do
  if "$python" -c 'import h5py' 2>/dev/null; then
    exec "$python" -B "${srcdir:-.}/tests/read_while_running.py" tests/test_run_h5
  fi
done
echo "skipped: no Python with h5py"
exit 77
