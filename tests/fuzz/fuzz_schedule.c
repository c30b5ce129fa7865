/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "fuzz_run.h"

#include "base/log.h"
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACTIONS_MAX = 512 }; /* of a schedule that is run: the rules are tried on every pair of actions */

static char *print(const petra_schedule *schedule, size_t *size) {
  char *text = NULL;
  FILE *stream = open_memstream(&text, size);
  if (!stream || petra_schedule_print(schedule, stream) != PETRA_OK || fclose(stream) != 0)
    petra_fuzz_fail("a schedule cannot be printed");
  return text;
}

/* What was printed reads back to the same actions on the same devices, and checks alike. Where the first text has empty
 * rounds, the second has fewer; so the third, printed again, is compared. */
static void check_round_trip(const petra_schedule *schedule, petra_status checked) {
  petra_schedule *again = NULL;
  size_t size, again_size;
  char *text = print(schedule, &size);
  if (petra_schedule_parse("printed", text, size, &again) != PETRA_OK)
    petra_fuzz_fail("a schedule that was printed cannot be read");
  if (!petra_schedule_recognise(text, size))
    petra_fuzz_fail("a schedule that was printed is not taken for one");
  char *again_text = print(again, &again_size);
  if (size != again_size || memcmp(text, again_text, size) != 0)
    petra_fuzz_fail("a schedule that was printed and read prints differently");
  if (again->stages != schedule->stages || again->microbatches != schedule->microbatches ||
      again->split_head != schedule->split_head || again->split_backward != schedule->split_backward)
    petra_fuzz_fail("a schedule that was printed and read is another");
  if (petra_schedule_check(again, "printed") != checked)
    petra_fuzz_fail("a schedule that was printed and read checks differently");
  petra_schedule_destroy(again);
  free(again_text);
  free(text);
}

int petra_fuzz_schedule(const uint8_t *data, size_t size) {
  const char *text = (const char *)data;
  petra_schedule *schedule = NULL;
  petra_fuzz_listen();
  bool recognised = size && petra_schedule_recognise(text, size);
  petra_status status = petra_schedule_parse("text", size ? text : "", size, &schedule);
  if (petra_fuzz_lines() != (status != PETRA_OK))
    petra_fuzz_fail("an error that is not one line");
  if (status != PETRA_OK)
    return 0;
  if (!recognised)
    petra_fuzz_fail("a schedule that was read was not taken for one");
  petra_fuzz_listen();
  status = petra_schedule_check(schedule, "text");
  if (petra_fuzz_lines() != (status != PETRA_OK))
    petra_fuzz_fail("a fault that is not one line");
  if (schedule->first[schedule->devices] <= ACTIONS_MAX) {
    check_round_trip(schedule, status);
    if (status == PETRA_OK)
      petra_fuzz_run(schedule, data, size);
    for (int p = 0; status == PETRA_OK && p < petra_program_count(); p++)
      if (petra_schedule_find_moment(schedule, petra_program_get(p), 1 + (int64_t)(size % 5)) != PETRA_OK)
        petra_fuzz_fail("the moment of a schedule cannot be told");
  }
  petra_schedule_destroy(schedule);
  return 0;
}
