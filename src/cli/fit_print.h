/* SPDX-License-Identifier: Apache-2.0 */
/* The result of petra simulate --fit, as a table or as JSON. */
#ifndef PETRA_CLI_FIT_PRINT_H
#define PETRA_CLI_FIT_PRINT_H

#include "profile/fit.h"

petra_status petra_fit_print(const petra_fit *fit);
petra_status petra_fit_print_json(const petra_fit *fit);

#endif
