/* SPDX-License-Identifier: Apache-2.0 */
/* The analytic ledger of memory: what the blocks of a network hold between forward and backward under lockstep delays,
 * in two accountings (docs/semantics/memory.md). Its inputs are plain numbers; it knows nothing of networks.
 *
 * A block of a stage with delay tau (microbatches between a forward and its backward) holds
 *     parameters + statistics + one input                        always,
 *     tau inputs                                                 if inputs are kept, and always at a block that cannot
 *                                                                rebuild its input,
 *     ceil(tau / k) times its parameters                         if weights are kept (k microbatches per update).
 * The accountings differ in what they count as one input, and in whether they count the first block's tau inputs:
 *     paper   one stream, but both at a downsampling block (two streams, not reversible, not the head: the head counts
 *             one); the stem's tau images count if inputs are kept, and otherwise do not
 *     strict  every stream; the stem's tau images never count, since they can be read from the data set again
 * In both the stem counts the one image batch that it works on. Only this reading reproduces the eight totals of the
 * paper's table 3: without that image all of them are 0.04e9 bytes too small; if both streams of the head counted,
 * the totals of `paper` would be 0.03e9 bytes too large. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum petra_accounting { PETRA_ACCOUNTING_PAPER, PETRA_ACCOUNTING_STRICT, PETRA_ACCOUNTINGS } petra_accounting;

/* Returns the name of an accounting: "paper", "strict". */
const char *petra_accounting_name(petra_accounting accounting);

/* Finds the accounting with this name. Errors: PETRA_USAGE, with `what` at the start of the line, if there is none. */
petra_status petra_accounting_parse(const char *what, const char *text, petra_accounting *out);

/* The properties of a block that the ledger uses. All counts are at least 0. */
typedef struct petra_ledger_block {
  int64_t parameters, statistics; /* scalars */
  int64_t stream_elements;        /* of one stream of the input of one image */
  int64_t waiting_stream_bytes;   /* bytes of one such stream while it waits for its backward; 0: the same as in use */
  int32_t streams;                /* streams of the input: 1 or 2 */
  bool reversible;                /* rebuilds its input from its output */
  bool reads_data;                /* its input comes from the data set */
  bool is_loss;                   /* its output is the loss */
  int64_t delay;                  /* tau of its stage */
} petra_ledger_block;

typedef struct petra_ledger_rule {
  petra_accounting accounting;
  bool inputs_kept, weights_kept;
  int64_t batch;      /* images of a microbatch, at least 1 */
  int64_t accumulate; /* k, at least 1 */
  /* Bytes of an element of an input, and of a parameter or statistic; at least 1. */
  int64_t element_bytes, parameter_bytes;
} petra_ledger_rule;

/* Bytes by category. */
typedef struct petra_ledger_bytes {
  int64_t parameters, statistics;
  int64_t input;         /* the input that is being processed */
  int64_t input_buffer;  /* inputs that wait for their backward */
  int64_t weight_buffer; /* weight versions that wait for their backward */
} petra_ledger_bytes;

/* Computes the bytes. Errors: PETRA_CONFIG if a count is out of its range or the bytes do not fit into 63 bits. */
petra_status petra_ledger_block_bytes(const petra_ledger_rule *rule, const petra_ledger_block *block,
                                      petra_ledger_bytes *out);

/* Adds `more` to `sum`, category by category. Errors: PETRA_CONFIG as above; `sum` is then undefined. */
petra_status petra_ledger_add(petra_ledger_bytes *sum, const petra_ledger_bytes *more);

/* Returns the sum over all categories. */
int64_t petra_ledger_total(const petra_ledger_bytes *bytes);
