# PETRA_HDF5: the serial HDF5 C library; Debian keeps it in its own folders and ships a pkg-config file.
AC_DEFUN([PETRA_HDF5], [
  PKG_CHECK_MODULES([HDF5], [hdf5-serial >= 1.10.7], [], [
    PKG_CHECK_MODULES([HDF5], [hdf5 >= 1.10.7], [], [AC_MSG_ERROR([HDF5 is missing (Debian: libhdf5-dev)])])])
])
