/* SPDX-License-Identifier: Apache-2.0 */
/* What backends say of a token that is none. */
#ifndef PETRA_BACKEND_TOKENS_H
#define PETRA_BACKEND_TOKENS_H

#include "backend/backend.h"

/* PETRA_BACKEND, logged: element `index` of `tokens` (N, T, 1), `token`, is no row of a table of `rows`. */
petra_status petra_token_refuse(const char *operation, const petra_tensor *tokens, int64_t index, double token,
                                int32_t rows);

#endif
