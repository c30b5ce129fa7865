dnl SPDX-License-Identifier: Apache-2.0
# PETRA_REPORT_PYTHON: the Python that petra report and the scripts of analysis/ run by where the first one on PATH lacks a module that
# they need. Optional; nothing that is built needs it.
AC_DEFUN([PETRA_REPORT_PYTHON], [
  AC_ARG_VAR([PETRA_PYTHON], [Python 3 with h5py, numpy, plotly and matplotlib, for petra report and the scripts of analysis/])
  AC_MSG_CHECKING([for a Python with h5py, numpy, plotly and matplotlib])
  petra_given=$PETRA_PYTHON
  petra_best=-1
  PETRA_PYTHON=python3
  petra_report_python="no: no Python 3 (Debian: python3-h5py python3-plotly python3-matplotlib)"
  for petra_python in ${petra_given:+"$petra_given"} "${PYTHON:-python3}" python3 /usr/bin/python3; do
    # Its path, what it lacks, and how good it is: h5py and numpy weigh most.
    petra_answer=`"$petra_python" -c '
import importlib.util, sys
lacks = [[name for name in ("h5py", "numpy", "plotly", "matplotlib") if importlib.util.find_spec(name) is None]]
print(7 - sum({"h5py": 3, "numpy": 2}.get(name, 1) for name in lacks), sys.executable, " ".join(lacks), sep="|")' 2>/dev/null`
    AS_IF([test -z "$petra_answer"],
      [AS_IF([test "x$petra_python" = "x$petra_given"], [AC_MSG_ERROR([PETRA_PYTHON=$petra_given cannot be run as Python 3])])
       continue])
    petra_rank=${petra_answer%%|*} petra_answer=${petra_answer#*|}
    AS_IF([test "$petra_rank" -gt "$petra_best"], [
      petra_best=$petra_rank PETRA_PYTHON=${petra_answer%%|*} petra_lacks=${petra_answer#*|}
      petra_report_python=$PETRA_PYTHON${petra_lacks:+", which lacks $petra_lacks"}])
    test "x$petra_python" != "x$petra_given" || break
  done
  AC_MSG_RESULT([$petra_report_python])
])
