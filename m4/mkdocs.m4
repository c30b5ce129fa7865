dnl SPDX-License-Identifier: Apache-2.0
# PETRA_MKDOCS: a Python that has MkDocs, which makes the documentation site (make html). Optional; nothing else needs it.
AC_DEFUN([PETRA_MKDOCS], [
  AC_MSG_CHECKING([for a Python with MkDocs])
  MKDOCS_PYTHON=
  for petra_python in "${PYTHON:-python3}" /usr/bin/python3; do
    AS_IF([test -z "$MKDOCS_PYTHON" && "$petra_python" -c 'import mkdocs' 2>/dev/null], [MKDOCS_PYTHON=$petra_python])
  done
  AS_IF([test -n "$MKDOCS_PYTHON"], [petra_report_mkdocs="MkDocs, run by $MKDOCS_PYTHON"],
    [petra_report_mkdocs="no: MkDocs is missing (Debian: mkdocs)"])
  AC_MSG_RESULT([$petra_report_mkdocs])
  AC_SUBST([MKDOCS_PYTHON])
])
