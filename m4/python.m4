dnl SPDX-License-Identifier: Apache-2.0
# PETRA_REPORT_PYTHON: the Python that runs the subcommands in Python (petra list, sweep, report, ...), and the scripts of analysis/ if the
# first one on PATH lacks a module that they need: of several, the first that loads h5py and numpy and has the most of the others. Optional;
# nothing that is built needs it.
AC_DEFUN([PETRA_REPORT_PYTHON], [
  AC_ARG_VAR([PETRA_PYTHON], [Python 3 with h5py, numpy, scipy, pandas, yaml, xxhash, plotly and matplotlib, for the subcommands in Python and the scripts of analysis/])
  AC_MSG_CHECKING([for a Python with h5py, numpy and more])
  petra_given=$PETRA_PYTHON
  petra_best=-1
  PETRA_PYTHON=python3
  petra_report_python="no: no Python 3 (Debian: python3-h5py python3-scipy python3-pandas python3-yaml python3-xxhash python3-plotly)"
  petra_pythons=
  for petra_minor in 20 19 18 17 16 15 14 13 12 11 10 9; do
    AS_IF([command -v python3.$petra_minor >/dev/null 2>&1], [petra_pythons="$petra_pythons python3.$petra_minor"])
  done
  for petra_python in ${petra_given:+"$petra_given"} "${PYTHON:-python3}" python3 /usr/bin/python3 $petra_pythons; do
    # Its path, what it lacks, and how good it is: h5py and numpy weigh most, and must load.
    petra_answer=`"$petra_python" -c '
import importlib.util, sys
lacks = [[]]
for name in ("h5py", "numpy", "scipy", "pandas", "yaml", "xxhash", "plotly", "matplotlib"):
    try:
        there = __import__(name) if name in ("h5py", "numpy") else importlib.util.find_spec(name)
    except ImportError:
        there = None
    if there is None:
        lacks.append(name)
print(36 - sum({"h5py": 20, "numpy": 10}.get(name, 1) for name in lacks), sys.executable, " ".join(lacks), sep="|")' 2>/dev/null`
    AS_IF([test -z "$petra_answer"],
      [AS_IF([test "x$petra_python" = "x$petra_given"], [AC_MSG_ERROR([PETRA_PYTHON=$petra_given cannot be run as Python 3])])
       continue])
    petra_rank=${petra_answer%%|*} petra_answer=${petra_answer#*|}
    AS_IF([test "$petra_rank" -gt "$petra_best"], [
      petra_best=$petra_rank PETRA_PYTHON=${petra_answer%%|*} petra_lacks=${petra_answer#*|}
      petra_report_python=$PETRA_PYTHON${petra_lacks:+", which lacks $petra_lacks"}])
    test "x$petra_python" != "x$petra_given" && test "$petra_best" -lt 36 || break
  done
  AC_MSG_RESULT([$petra_report_python])
])
