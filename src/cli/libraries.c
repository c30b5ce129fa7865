/* The one file that includes the libraries' headers for their versions' sake. */
#include "cli/libraries.h"

#include "base/version.h"

#include <gsl/gsl_version.h>
#include <hdf5.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

void petra_libraries_describe(char *text, size_t size) {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  snprintf(text, size, "HDF5 %u.%u.%u, libyaml %s, jansson %s, GSL %s", major, minor, release, yaml_get_version_string(),
           JANSSON_VERSION, gsl_version);
}

void petra_version_describe(char *text, size_t size) {
  const char *commit = petra_version_git_commit();
  if (strcmp(commit, "unknown") == 0)
    snprintf(text, size, "%s", petra_version());
  else
    snprintf(text, size, "%s (%s)", petra_version(), commit);
}
