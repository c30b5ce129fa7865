/* SPDX-License-Identifier: Apache-2.0 */
/* petra inspect --requests and petra simulate --requests: answers the questions of another program about many configs
 * (docs/requests.md). Each line of the input is a request, a JSON object; each line of the output is its answer. */
#pragma once

#include "cli/command.h"

petra_status petra_requests_inspect(const petra_arguments *arguments);
petra_status petra_requests_simulate(const petra_arguments *arguments);

/* --- command_simulate.c: the object of petra simulate --json, which is an answer too --- */

struct json_t; /* jansson's */
struct petra_run;

/* Returns the result of a simulation that has run; NULL without memory. */
struct json_t *petra_simulate_json(const struct petra_run *simulation);

/* Prints warnings about the result. */
void petra_simulate_warn(const struct petra_run *simulation);
