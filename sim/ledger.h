/* SPDX-License-Identifier: Apache-2.0 */
/* The analytic ledger of memory: what the blocks of a network hold between forward and backward under lockstep delays, in
 * two accountings (docs/semantics/memory.md). Plain numbers go in: nothing here knows a network.
 *
 * A block of a stage with delay tau (microbatches between a forward and its backward) holds
 *     parameters + statistics + one input                        always,
 *     tau inputs                                                 where inputs are kept, and at a block that cannot rebuild
 *                                                                its input in any case,
 *     ceil(tau / k) times its parameters                         where weights are kept (k microbatches an update).
 * What the accountings count as one input, and where the first block's tau inputs count:
 *     paper   one stream, but both at a downsampling block (two streams, not reversible, not the head: the head counts one);
 *             the stem's tau images count where inputs are kept and not where they are not
 *     strict  every stream; the stem's tau images never count, since they can be read from the data set again
 * In both the stem counts the one image batch that it works on. No other reading gives the eight totals of table 3: without
 * that image all of them are 0.04e9 bytes too small, and with both streams of the head those of `paper` 0.03e9 too large. */
#ifndef PETRA_SIM_LEDGER_H
#define PETRA_SIM_LEDGER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum petra_accounting { PETRA_ACCOUNTING_PAPER, PETRA_ACCOUNTING_STRICT, PETRA_ACCOUNTINGS } petra_accounting;

/* "paper", "strict". */
const char *petra_accounting_name(petra_accounting accounting);

/* The accounting of that name. PETRA_USAGE, with `what` in front of the line, if there is none. */
petra_status petra_accounting_parse(const char *what, const char *text, petra_accounting *out);

/* What the ledger must know of one block. All counts at least 0. */
typedef struct petra_ledger_block {
  int64_t parameters, statistics; /* scalars */
  int64_t stream_elements;        /* of one stream of the input of one image */
  int32_t streams;                /* of the input: 1 or 2 */
  bool reversible;                /* rebuilds its input from its output */
  bool reads_data;                /* its input comes from the data set */
  bool is_loss;                   /* its output is the loss */
  int64_t delay;                  /* tau of its stage */
} petra_ledger_block;

typedef struct petra_ledger_rule {
  petra_accounting accounting;
  bool inputs_kept, weights_kept;
  int64_t batch;                          /* images of a microbatch, at least 1 */
  int64_t accumulate;                     /* k, at least 1 */
  int64_t element_bytes, parameter_bytes; /* of an element of an input, of a parameter or statistic; at least 1 */
} petra_ledger_rule;

/* Bytes by category. */
typedef struct petra_ledger_bytes {
  int64_t parameters, statistics;
  int64_t input;         /* the one that is worked on */
  int64_t input_buffer;  /* those that wait for their backward */
  int64_t weight_buffer; /* versions that wait for theirs */
} petra_ledger_bytes;

/* PETRA_CONFIG if a count is out of its range or the bytes do not fit into 63 bits. */
petra_status petra_ledger_block_bytes(const petra_ledger_rule *rule, const petra_ledger_block *block,
                                      petra_ledger_bytes *out);

/* Adds `more` to `sum`, category by category. PETRA_CONFIG as above; `sum` is then undefined. */
petra_status petra_ledger_add(petra_ledger_bytes *sum, const petra_ledger_bytes *more);

/* All categories together. */
int64_t petra_ledger_total(const petra_ledger_bytes *bytes);

#endif
