/* SPDX-License-Identifier: Apache-2.0 */
/* The versions of one stage's weights that the rank with the probe has. The owner of the stage counts them by the same
 * rule, without the weights, and sends none twice. A version is let go when an update has made another one the latest, but
 * for the one that the last F of a probed microbatch read, which the next may read again. */
#ifndef PETRA_PROBE_PROBE_STORE_H
#define PETRA_PROBE_PROBE_STORE_H

#include "nn/tensors.h"
#include "stage/probed_stage.h"

typedef struct petra_probe_stored {
  petra_weights_key key;
  petra_tensor_set *sets; /* per block of the stage; NULL where they are only counted */
  int blocks;             /* of them that have come */
} petra_probe_stored;

typedef struct petra_probe_store {
  int blocks;      /* of the stage */
  int64_t forward; /* that the last F read */
  petra_probe_stored *stored;
  int64_t count, capacity;
} petra_probe_store; /* zeros but for `blocks`: none */

void petra_probe_store_fini(petra_probe_store *store);

/* NULL: it is not there. */
petra_probe_stored *petra_probe_store_find(const petra_probe_store *store, petra_weights_key key);

/* One more, which is not there; `sets`: with empty sets. */
petra_status petra_probe_store_add(petra_probe_store *store, petra_weights_key key, bool sets,
                                   petra_probe_stored **out);

/* F of a probed microbatch has read `version`; an update has made `latest`. */
void petra_probe_store_forwarded(petra_probe_store *store, int64_t version, int64_t latest);
void petra_probe_store_updated(petra_probe_store *store, int64_t latest);

#endif
