# PETRA_ONEDNN: oneDNN, which has no pkg-config file on Debian.
AC_DEFUN([PETRA_ONEDNN], [
  AC_CHECK_HEADERS([oneapi/dnnl/dnnl.h], [], [AC_MSG_ERROR([oneDNN is missing (Debian: libdnnl-dev)])])
  AC_CHECK_LIB([dnnl], [dnnl_engine_create], [DNNL_LIBS="-ldnnl"], [AC_MSG_ERROR([libdnnl does not link])])
  AC_SUBST([DNNL_LIBS])
])
