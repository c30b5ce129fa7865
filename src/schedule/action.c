#include "schedule/action.h"

#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
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

bool petra_action_read(const char *text, petra_action *out) {
  char *end;
  if (text[0] < '1' || text[0] > '9')
    return false;
  errno = 0;
  long long stage = strtoll(text, &end, 10);
  if (errno || stage > INT32_MAX)
    return false;
  const char *letter = *end ? memchr(letters, *end, sizeof letters) : NULL;
  if (!letter || end[1] < '0' || end[1] > '9' || (end[1] == '0' && end[2] != 0))
    return false;
  long long microbatch = strtoll(end + 1, &end, 10);
  if (errno || *end)
    return false;
  *out = (petra_action){(int32_t)stage, (petra_action_kind)(letter - letters), microbatch};
  return true;
}

petra_status petra_action_parse(const char *text, petra_action *out) {
  if (petra_action_read(text, out))
    return PETRA_OK;
  char shown[44];
  return petra_fail(
      PETRA_SCHEDULE,
      "'%s' is no action; expected a stage from 1, one of F, B, W, U, E and a microbatch from 0, such as 2F0",
      petra_utf8_show(shown, sizeof shown, text, strlen(text)));
}
