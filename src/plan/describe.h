/* SPDX-License-Identifier: Apache-2.0 */
/* What a config asks for in a few words, as petra train, simulate and inspect say it; no line ends are printed unless it is said. */
#pragma once

#include "config/config.h"

#include <stdio.h>

/* "RevNet-18, width 16, cifar stem"; with cluster.stages "equal stages, no model". */
void petra_describe_network(const petra_config *config, FILE *out);

/* "petra, k = 4, with method.backward_weights: stashed": every other key of the method that has not its default. */
petra_status petra_describe_method(const petra_config *config, FILE *out);

/* "unit (seconds: forward 1, ...)", "roofline of device a100 in fp32, a lower bound", ...; and what changes them: speeds, jitter, stragglers,
 * pauses, failures. */
petra_status petra_describe_costs(const petra_config *config, FILE *out);

/* The precision of the numbers of messages, "fp32" or "fp64", for JSON. NULL if the config gives the bytes of messages (cluster.stages). */
const char *petra_describe_message_precision(const petra_config *config);

/* "messages fp32" where a precision of 2 bytes is named, which holds inside of blocks: messages are counted, timed and sent with 4 bytes an
 * element. NULL elsewhere. */
const char *petra_describe_messages(const petra_config *config);

/* The line "numbers  bf16 inside of blocks, messages fp32", with its end, where petra_describe_messages gives one; else nothing. */
void petra_describe_numbers(const petra_config *config, FILE *out);

/* "latency 0 s, bandwidth infinite", and what there is of nodes and cards; measured: those of the profile are taken instead; and
 * petra_describe_messages. */
void petra_describe_links(const petra_config *config, bool measured, FILE *out);

/* "cifar10 of data/cifar-10-batches-bin", "text of shakespeare.txt, windows of 128 tokens", "grammar, ..."; a data.limit. */
void petra_describe_data(const petra_config *config, FILE *out);

/* "adamw, lr 0.001, with optim.weight_decay: 0.1": every other key of the optimiser that has not the default of that one. */
petra_status petra_describe_optimiser(const petra_config *config, FILE *out);

/* "18, 16, 14, ..., 0": at most `most` numbers, the last one among them. Of more than that equal neighbours are one: "0 (x 24)". */
void petra_describe_list(const int64_t *values, int count, int maximum, FILE *out);
