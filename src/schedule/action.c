/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/action.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = {
#define PETRA_ACTION_LETTER(name, letter, meaning) letter,
    PETRA_ACTION_LIST(PETRA_ACTION_LETTER)
#undef PETRA_ACTION_LETTER
};

char petra_action_letter(petra_action_kind kind) {
  return letters[kind];
}

void petra_action_print(const petra_action *action, char *text, size_t size) {
  snprintf(text, size, "%d%c%lld", action->stage, letters[action->kind], (long long)action->microbatch);
}

#define MAX_STAGES 100000
#define LAST_MICROBATCH 999999999999
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *petra_action_check(int64_t stage, int64_t kind, int64_t microbatch) {
  if (stage < 1 || stage > MAX_STAGES)
    return "a stage of 1 .. " TEXT(MAX_STAGES);
  if (microbatch < 0 || microbatch > LAST_MICROBATCH)
    return "a microbatch of 0 .. " TEXT(LAST_MICROBATCH);
  return kind >= 0 && kind < PETRA_ACTION_KINDS ? NULL : "a kind of 0 .. 4";
}

const char *petra_action_read(const char *text, petra_action *out) {
  static const char *const form = "a stage from 1, one of F, B, W, U, E and a microbatch from 0, such as 2F0";
  char *end;
  if (text[0] < '1' || text[0] > '9')
    return form;
  long long stage = strtoll(text, &end, 10); /* strtoll clamps a number that is out of range */
  const char *letter = *end ? memchr(letters, *end, sizeof letters) : NULL;
  if (!letter || end[1] < '0' || end[1] > '9' || (end[1] == '0' && end[2] != 0))
    return form;
  long long microbatch = strtoll(end + 1, &end, 10);
  if (*end)
    return form;
  const char *expected = petra_action_check(stage, letter - letters, microbatch);
  if (!expected)
    *out = (petra_action){(int32_t)stage, (petra_action_kind)(letter - letters), microbatch};
  return expected;
}
