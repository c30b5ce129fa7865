/* SPDX-License-Identifier: Apache-2.0 */
#include "base/release.h"

#include <config.h>     /* of the build; with quotes it would be src/config/config.h */
#include <git_commit.h> /* GIT_COMMIT: made by make, see src/local.mk */

const char *petra_version(void) {
  return PACKAGE_VERSION;
}

const char *petra_version_git_commit(void) {
  return GIT_COMMIT;
}
