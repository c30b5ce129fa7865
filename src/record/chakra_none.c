/* SPDX-License-Identifier: Apache-2.0 */
/* Built if configure found no protobuf-c. */
#include "base/log.h"
#include "record/chakra_file.h"

#include <stddef.h>

petra_status petra_chakra_files_create(const char *directory, int32_t devices, const char *method, bool overwrite,
                                       petra_chakra_files **out) {
  (void)directory, (void)devices, (void)method, (void)overwrite, (void)out;
  return petra_fail(PETRA_USAGE, "--chakra: this petra was built without protobuf-c; install it (Debian: "
                                 "libprotobuf-c-dev, protobuf-c-compiler), then run ./configure and make again");
}

petra_status petra_chakra_files_add(petra_chakra_files *files, int32_t device, const petra_chakra_node *node) {
  (void)files, (void)device, (void)node;
  return PETRA_INTERNAL;
}

petra_status petra_chakra_files_finish(petra_chakra_files *files) {
  (void)files;
  return PETRA_INTERNAL;
}

void petra_chakra_files_destroy(petra_chakra_files *files) {
  (void)files;
}

const char *petra_chakra_library(void) {
  return NULL;
}
