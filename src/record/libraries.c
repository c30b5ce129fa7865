/* SPDX-License-Identifier: Apache-2.0 */
/* Only this file includes the libraries' headers for their versions. */
#include "record/run_h5.h"

#include "data/jpeg.h"
#include "group/wire.h"

#include <gsl/gsl_version.h>
#include <hdf5.h>
#include <jansson.h>
#include <stdio.h>
#include <xxhash.h>
#include <yaml.h>

void petra_libraries_describe(char *text, size_t size) {
  const char *jpeg = petra_jpeg_decoder(), *mpi = petra_wire_mpi_version();
  snprintf(text, size, "HDF5 %d.%d.%d, libyaml %s, jansson %s, GSL %s, xxHash %d.%d.%d%s%s%s%s", H5_VERS_MAJOR,
           H5_VERS_MINOR, H5_VERS_RELEASE, yaml_get_version_string(), JANSSON_VERSION, gsl_version, XXH_VERSION_MAJOR,
           XXH_VERSION_MINOR, XXH_VERSION_RELEASE, jpeg ? ", " : "", jpeg ? jpeg : "", mpi ? ", " : "", mpi ? mpi : "");
}
