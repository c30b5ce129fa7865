# PETRA_SUMMARY: what configure found and what it did not.
AC_DEFUN([PETRA_SUMMARY], [
  AC_MSG_NOTICE([petra $PACKAGE_VERSION configured])
])
