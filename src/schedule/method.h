/* A method: a program and what a stage keeps and computes again. Presets by name; docs/semantics.md has the table. */
#ifndef PETRA_SCHEDULE_METHOD_H
#define PETRA_SCHEDULE_METHOD_H

#include "base/config.h"
#include "schedule/program.h"

typedef struct petra_method {
  const char *name;
  const char *help;
  const petra_program_ops *program;
  const char *forward_weights;  /* which weights F reads: "latest" */
  const char *backward_weights; /* which weights B reads: "latest" */
  const char *keep;             /* kept between F and B: "graph", "input", "nothing" */
  bool inverts;                 /* B reconstructs the input; messages down carry streams */
  bool recomputes;              /* B computes the graph again, by reconstruction or from the input */
} petra_method;

int petra_method_count(void);
const petra_method *petra_method_get(int index);

/* The method that method.name names. PETRA_CONFIG with the list of names otherwise. */
petra_status petra_method_from_config(const petra_config *config, const petra_method **out);

/* Largest lag of a stage, in updates between a microbatch's forward and its backward: ceil(tau_j / k) in lockstep, else 0. */
int64_t petra_method_lag(const petra_method *method, int32_t stages, int32_t stage, int64_t accumulate);

#endif
