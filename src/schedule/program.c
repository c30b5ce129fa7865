#include "schedule/program.h"

#include <string.h>

const petra_program_ops *petra_program_find(const char *name) {
  static const petra_program_ops *const programs[] = {&petra_program_sequential, &petra_program_lockstep, &petra_program_arrival};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    if (strcmp(programs[i]->name, name) == 0)
      return programs[i];
  return NULL;
}
