dnl SPDX-License-Identifier: Apache-2.0
# PETRA_HDF5: the serial HDF5 C library; Debian keeps it in its own folders and ships a pkg-config file.
AC_DEFUN([PETRA_HDF5], [
  PKG_CHECK_MODULES([HDF5], [hdf5-serial >= 1.10.7],
    [petra_version_HDF5=`$PKG_CONFIG --modversion hdf5-serial`], [
    PKG_CHECK_MODULES([HDF5], [hdf5 >= 1.10.7],
      [petra_version_HDF5=`$PKG_CONFIG --modversion hdf5`],
      [PETRA_MISSING([HDF5 1.10.7 or newer], [libhdf5-dev])])])
])
