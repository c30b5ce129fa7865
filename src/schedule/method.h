/* A method: a program, which weights a stage reads, and what it keeps and computes again. Presets by name; docs/semantics.md has the table. */
#ifndef PETRA_SCHEDULE_METHOD_H
#define PETRA_SCHEDULE_METHOD_H

#include "base/config.h"
#include "schedule/program.h"

/* Weights: "latest"; "stashed", those that the microbatch was forwarded with; "double_buffer", those before the latest
 * update but for microbatches that this update covers: F and B of a microbatch read the same ones. */
typedef struct petra_method {
  const char *name;
  const char *help;
  const petra_program_ops *program;
  const char *forward_weights;  /* which weights F reads */
  const char *backward_weights; /* which weights B reads */
  const char *invert_weights;   /* which weights the reconstruction of the input reads; NULL: nothing is inverted */
  const char *keep;             /* kept between F and B besides weights: "graph", "input", "nothing" */
  bool inverts;                 /* B reconstructs the input; messages down carry streams */
  bool recomputes;              /* B computes the graph again, by reconstruction or from the input */
  bool split_head;              /* the last stage's F and B are two actions, unless the config says otherwise */
  int32_t chunks;               /* stages a device, unless the config says otherwise; 0 counts as 1 */
  bool trains;                  /* petra train can run it; the others can be simulated only */
} petra_method;

int petra_method_count(void);
const petra_method *petra_method_get(int index);

/* By name; NULL if there is none. */
const petra_method *petra_method_find(const char *name);

/* The method that method.name names. PETRA_CONFIG with the list of names otherwise. */
petra_status petra_method_from_config(const petra_config *config, const petra_method **out);

/* PETRA_UNSUPPORTED, logged, if the method can be simulated only. */
petra_status petra_method_check_trains(const petra_method *method);

/* Largest lag of a stage, in updates between the weights of a microbatch's forward and those at its backward, with the
 * preset's head; -1 where the program does not fix it (`arrival`):
 *  - lockstep: ceil(tau_j / k);
 *  - 1f1b-async: ceil((J - j) / k); double buffered, the same for all stages: ceil((J - 1) / k), that is 1 for k >= J;
 *  - else 0. */
int64_t petra_method_lag(const petra_method *method, int32_t stages, int32_t stage, int64_t accumulate);

#endif
