/* What `petra profile` prints. */
#ifndef PETRA_CLI_PROFILE_H
#define PETRA_CLI_PROFILE_H

#include "io/profile.h"
#include "run/plan.h"

typedef struct petra_profile_report {
  const petra_plan *plan;
  const petra_profile *profile;
  const petra_profile_about *about;
  const char *path;
} petra_profile_report;

petra_status petra_profile_print_json(const petra_profile_report *report);
petra_status petra_profile_print_table(const petra_profile_report *report);

#endif
