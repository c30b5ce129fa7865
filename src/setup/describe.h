/* SPDX-License-Identifier: Apache-2.0 */
/* Describes what a config requests in a few words, for petra train, simulate and inspect. No line ends are printed
 * unless stated. */
#pragma once

#include "config/config.h"

#include <stdbool.h>
#include <stdio.h>

/* Prints "RevNet-18, width 16, cifar stem"; with cluster.stages "equal stages, no model". */
void petra_describe_network(const petra_config *config, FILE *out);

/* Prints "petra, k = 4, with method.backward_weights: stashed": after "with", every other key of the method whose value
 * is not its default. */
petra_status petra_describe_method(const petra_config *config, FILE *out);

/* Prints "unit (seconds: forward 1, ...)", "roofline of device a100 in fp32, a lower bound", ...; then everything that
 * modifies the costs: speeds, jitter, stragglers, pauses, failures. */
petra_status petra_describe_costs(const petra_config *config, FILE *out);

/* Return the number format of messages: "fp32", "fp64", "int8", "int8 up, bf16 down". NULL if the config gives the bytes
 * of messages (cluster.stages). The second function also returns NULL if the format is the precision of the network. */
enum { PETRA_DESCRIBE_MESSAGES = 32 };
const char *petra_describe_message_precision(const petra_config *config, char text[PETRA_DESCRIBE_MESSAGES]);
const char *petra_describe_messages(const petra_config *config, char text[PETRA_DESCRIBE_MESSAGES]);

/* Prints the line "numbers bf16 inside blocks, messages fp32" or "numbers fp32, messages int8", with its line end, if
 * petra_describe_messages returns a text. */
void petra_describe_numbers(const petra_config *config, FILE *out);

/* Prints "latency 0 s, bandwidth infinite", then nodes and cards, if any, and petra_describe_messages. If `measured` is
 * true, the links are the links of the profile. */
void petra_describe_links(const petra_config *config, bool measured, FILE *out);

/* Prints "cifar10 of data/cifar-10-batches-bin", "text of shakespeare.txt, windows of 128 tokens", "grammar, ..."; then
 * data.limit, if it is set. */
void petra_describe_data(const petra_config *config, FILE *out);

/* Prints "adamw, lr 0.001, with optim.weight_decay: 0.1": after "with", every other key whose value is not the default
 * of this optimiser. */
petra_status petra_describe_optimiser(const petra_config *config, FILE *out);

/* Prints "18, 16, 14, ..., 0": at most `maximum` numbers, including the last one. If there are more, equal neighbours
 * are merged: "0 (x 24)". */
void petra_describe_list(const int64_t *values, int count, int maximum, FILE *out);
