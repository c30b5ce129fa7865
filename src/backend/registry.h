/* The constructors of the backends, for registry.c. Each sets ops, precision and threads of the handle; each fails
 * with PETRA_UNSUPPORTED for a precision that it cannot do, in one line that names what would work. */
#ifndef PETRA_BACKEND_REGISTRY_H
#define PETRA_BACKEND_REGISTRY_H

#include "backend/backend.h"

petra_status petra_ref_create(petra_precision precision, int threads, bool deterministic, petra_backend **out);
petra_status petra_cpu_create(petra_precision precision, int threads, bool deterministic, petra_backend **out);

/* In builds with CUDA (PETRA_HAVE_CUDA). */
petra_status petra_cuda_create(const petra_backend_options *options, petra_backend **out);
bool petra_cuda_present(void); /* there is a device */

#endif
