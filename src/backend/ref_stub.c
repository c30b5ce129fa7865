#include "backend/registry.h"
#include "base/log.h"

petra_status petra_ref_create(petra_precision precision, int threads, bool deterministic,
                              petra_backend **out) {
  (void)precision;
  (void)threads;
  (void)deterministic;
  (void)out;
  return petra_fail(PETRA_UNSUPPORTED, "device.backend: ref is not built");
}
