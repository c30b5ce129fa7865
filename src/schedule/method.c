/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/method.h"

#include "base/log.h"
#include "base/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define LATEST PETRA_WEIGHTS_LATEST
#define STASHED PETRA_WEIGHTS_STASHED
#define DOUBLE PETRA_WEIGHTS_DOUBLE_BUFFER
#define NONE PETRA_WEIGHTS_NONE
#define GRAPH PETRA_KEEP_GRAPH
#define INPUT PETRA_KEEP_INPUT
#define NOTHING PETRA_KEEP_NOTHING

/* expand() sets the members that follow from these. */
#define PRESET(preset, order, f, b, i, kept, text)                                                                     \
  {                                                                                                                    \
    .name = preset, .help = text, .program = &petra_program_##order, .forward_weights = f, .backward_weights = b,      \
    .invert_weights = i, .keep = kept                                                                                  \
  }

/* clang-format off */
static const petra_method methods[] = {
    /*     name                 program      F       B        inverts  keep */
    PRESET("backprop",           sequential,  LATEST, LATEST,  NONE,    GRAPH,
           "naive model parallelism: one microbatch at a time, graphs kept"),
    PRESET("reversible",         sequential,  LATEST, LATEST,  LATEST,  NOTHING,
           "backprop that reconstructs the inputs of reversible blocks instead of keeping graphs"),
    PRESET("checkpoint",         sequential,  LATEST, LATEST,  NONE,    INPUT,
           "backprop that keeps inputs and computes the graphs again"),
    PRESET("gpipe",              gpipe,       LATEST, LATEST,  NONE,    GRAPH,
           "all forwards of a flush, then all backwards; graphs kept"),
    PRESET("gpipe-checkpoint",   gpipe,       LATEST, LATEST,  NONE,    INPUT,
           "gpipe that keeps inputs and computes the graphs again"),
    PRESET("1f1b",               1f1b,        LATEST, LATEST,  NONE,    GRAPH,
           "forward and backward alternate, with a flush (DAPPLE)"),
    PRESET("interleaved",        interleaved, LATEST, LATEST,  NONE,    GRAPH,
           "1f1b with several chunks of the network on every device (Megatron-LM)"),
    PRESET("looped-bfs",         looped_bfs,  LATEST, LATEST,  NONE,    GRAPH,
           "gpipe with several chunks of the network on every device (breadth-first)"),
    PRESET("zb-h1",              zb_h1,       LATEST, LATEST,  NONE,    GRAPH,
           "1f1b whose weight gradients fill the waiting time (zero bubble)"),
    PRESET("zb-h2",              zb_h2,       LATEST, LATEST,  NONE,    GRAPH,
           "zb-h1 with twice the graphs, so that devices do not wait between their first and last action"),
    PRESET("interleaved-zb",     interleaved_zb, LATEST, LATEST, NONE,  GRAPH,
           "interleaved whose weight gradients fill the waiting time"),
    PRESET("zb-v",               zb_v,        LATEST, LATEST,  NONE,    GRAPH,
           "two chunks on every device in a V; zero bubble, keeps as much as 1f1b"),
    PRESET("v-half",             v_half,      LATEST, LATEST,  NONE,    GRAPH,
           "two chunks on every device in a V; about half the graphs of 1f1b"),
    PRESET("v-min",              v_min,       LATEST, LATEST,  NONE,    GRAPH,
           "two chunks on every device in a V; about a third of the graphs of 1f1b"),
    PRESET("dualpipe-v",         dualpipe_v,  LATEST, LATEST,  NONE,    GRAPH,
           "two chunks on every device in a V; forwards overlap with backwards (DeepSeek-AI)"),
    PRESET("pipedream",          1f1b_async,  LATEST, STASHED, NONE,    GRAPH,
           "1f1b without a flush; backward with the weights of its forward"),
    PRESET("pipedream-2bw",      1f1b_async,  DOUBLE, DOUBLE,  NONE,    GRAPH,
           "1f1b without a flush, two versions of the weights; accumulate >= J"),
    PRESET("paci",               1f1b_async,  LATEST, LATEST,  NONE,    GRAPH,
           "1f1b without a flush; backward with the graph of its forward and the latest weights, none stashed"),
    PRESET("ddg",                forward_locked, LATEST, STASHED, NONE, GRAPH,
           "forwards one microbatch after the other, backwards of all stages at once; graphs and weights of the forward kept"),
    PRESET("fr",                 forward_locked, LATEST, LATEST, NONE,  INPUT,
           "as ddg, but inputs kept, graphs computed again with the latest weights (features replay)"),
    PRESET("dgl",                local,       LATEST, LATEST,  NONE,    GRAPH,
           "every stage learns from a loss of its own; nothing is sent down (decoupled greedy learning)"),
    PRESET("delayed",            lockstep,    LATEST, STASHED, NONE,    GRAPH,
           "every stage at once with delayed gradients, graphs and weights of the forward kept"),
    PRESET("dsp",                lockstep,    LATEST, LATEST,  NONE,    INPUT,
           "delayed gradients; inputs kept, graphs computed again with the latest weights"),
    PRESET("delayed-reversible", lockstep,    LATEST, STASHED, STASHED, NOTHING,
           "delayed gradients; inputs reconstructed with the weights of the forward, which are kept"),
    PRESET("approximate-input",  lockstep,    LATEST, STASHED, LATEST,  NOTHING,
           "delayed gradients at the weights of the forward, inputs reconstructed with the latest weights"),
    PRESET("petra",              lockstep,    LATEST, LATEST,  LATEST,  NOTHING,
           "every stage at once with delayed gradients, inputs reconstructed with the latest weights"),
    PRESET("petra-arrival",      arrival,     LATEST, LATEST,  LATEST,  NOTHING,
           "petra without ticks: a stage takes what arrived first, backward before forward"),
};
/* clang-format on */

/* Sets the members that follow from the choices. */
static void expand(petra_method *method) {
  const petra_program_ops *program = method->program;
  method->inverts = method->keep == PETRA_KEEP_NOTHING;
  method->recomputes = method->keep != PETRA_KEEP_GRAPH;
  method->split_head = program->split_head;
  method->chunks = program->layout == PETRA_LAYOUT_LOOP || program->layout == PETRA_LAYOUT_V ? 2 : 1;
}

int petra_method_count(void) {
  return (int)(sizeof methods / sizeof *methods);
}

petra_method petra_method_get(int index) {
  petra_method method = methods[index];
  expand(&method);
  method.accumulate = 1;
  method.mitigation = (petra_mitigation){.prediction_horizon = 1, .gradient_shrinking = 1};
  return method;
}

const char *petra_weights_name(petra_weights weights) {
  return petra_config_choice_name("method.invert_weights", (int)weights);
}

const char *petra_keep_name(petra_keep keep) {
  return petra_config_choice_name("method.keep", (int)keep);
}

enum { MAX_NAMES = 32 };
_Static_assert(sizeof methods / sizeof *methods < MAX_NAMES, "a list of names ends with NULL");

/* Fails because `name` is not in a list, which ends with NULL; `first`, such as "preset, ", is accepted as well. */
static petra_status fail_unknown(const petra_config *config, const char *key, const char *what, const char *name,
                                 const char *first, const char *const *list) {
  char names[512], near[PETRA_NEAREST_LONGEST];
  int length = snprintf(names, sizeof names, "%s%s", first, list[0]);
  for (int i = 1; list[i] && length < (int)sizeof names; i++)
    length += snprintf(names + length, sizeof names - (size_t)length, ", %s", list[i]);
  return petra_config_fail(config, key, "no %s '%s'; expected one of %s%s", what, name, names,
                           petra_nearest_hint(near, sizeof near, "", name, list));
}

static petra_status find_preset(const petra_config *config, petra_method *out) {
  const char *list[MAX_NAMES] = {NULL};
  for (int i = 0; i < petra_method_count(); i++) {
    list[i] = methods[i].name;
    if (strcmp(methods[i].name, config->method.name) == 0) {
      *out = petra_method_get(i);
      return PETRA_OK;
    }
  }
  return fail_unknown(config, "method.name", "method", config->method.name, "", list);
}

static petra_status override_program(const petra_config *config, petra_method *method) {
  const char *list[MAX_NAMES] = {NULL};
  const petra_program_ops *program = petra_program_find(config->method.program);
  if (program)
    method->program = program;
  if (program || strcmp(config->method.program, "preset") == 0)
    return PETRA_OK;
  assert(petra_program_count() < MAX_NAMES);
  for (int i = 0; i < petra_program_count(); i++)
    list[i] = petra_program_get(i)->name;
  return fail_unknown(config, "method.program", "program", config->method.program, "preset, ", list);
}

/* Replaces choices of the preset by the choices of the config. `keep` determines whether inputs are inverted. */
static void override_choices(const petra_config *config, petra_method *method) {
  if (config->method.forward_weights != PETRA_WEIGHTS_PRESET)
    method->forward_weights = config->method.forward_weights;
  if (config->method.backward_weights != PETRA_WEIGHTS_PRESET)
    method->backward_weights = config->method.backward_weights;
  if (config->method.keep != PETRA_KEEP_PRESET)
    method->keep = config->method.keep;
  if (config->method.invert_weights != PETRA_WEIGHTS_PRESET)
    method->invert_weights = config->method.invert_weights;
  else if (method->keep != PETRA_KEEP_NOTHING)
    method->invert_weights = PETRA_WEIGHTS_NONE;
  else if (method->invert_weights == PETRA_WEIGHTS_NONE)
    method->invert_weights = method->backward_weights;
}

static petra_status check_choices(const petra_config *config, const petra_method *method) {
  bool forward = method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER;
  bool backward = method->backward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER;
  bool inverts = method->invert_weights != PETRA_WEIGHTS_NONE;
  if (method->forward_weights == PETRA_WEIGHTS_STASHED)
    return petra_config_fail(
        config, "method.forward_weights",
        "stashed would store the weights that the forward reads; expected latest or double_buffer");
  if (inverts && method->keep != PETRA_KEEP_NOTHING)
    return petra_config_fail(config, "method.invert_weights",
                             "%s with method.keep: %s, with which nothing is inverted; expected none",
                             petra_weights_name(method->invert_weights), petra_keep_name(method->keep));
  if (!inverts && method->keep == PETRA_KEEP_NOTHING)
    return petra_config_fail(
        config, "method.invert_weights",
        "none with method.keep: nothing, whose inputs have to be reconstructed; expected latest or stashed");
  if (forward != backward || (inverts && (method->invert_weights == PETRA_WEIGHTS_DOUBLE_BUFFER) != forward))
    return petra_config_fail(
        config, forward ? "method.backward_weights" : "method.forward_weights",
        "a double buffer serves forward, backward and inversion alike; expected double_buffer for all of them or none");
  if (method->early_recompute && (!method->program->early_recompute || method->keep != PETRA_KEEP_INPUT))
    return petra_config_fail(config, "method.early_recompute",
                             "true with program %s and method.keep: %s; expected false, or method gpipe-checkpoint",
                             method->program->name, petra_keep_name(method->keep));
  if (forward && method->sync_period > 0)
    return petra_config_fail(config, "method.sync_period",
                             "%lld with a double buffer, which has a rule of its own; expected 0",
                             (long long)method->sync_period);
  return PETRA_OK;
}

/* --- method.extra_delay: the delay as a variable that is independent of the number of stages --- */

/* Checks that the method has an order in which B can come later. */
static petra_status check_order(const petra_config *config, const petra_method *method) {
  const petra_program_ops *program = method->program;
  if (*config->method.schedule)
    return petra_config_fail(config, "method.extra_delay",
                             "with method.schedule: %s, whose order is fixed; expected 0, or []",
                             config->method.schedule);
  if (program->arrival || !program->delay)
    return petra_config_fail(config, "method.extra_delay",
                             "method %s, whose program %s %s; expected 0, or a method with a fixed delay", method->name,
                             program->name, program->arrival ? "fixes no delay" : "has no delay");
  if (method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER)
    return petra_config_fail(config, "method.extra_delay",
                             "method %s, whose double buffer makes every delay one update; expected 0, or weights that "
                             "are not double-buffered",
                             method->name);
  return PETRA_OK;
}

/* An extra delay at the last stage splits the head; in lockstep, a split head accounts for one tick of the delay. */
static petra_status check_head(const petra_config *config, int64_t at_last) {
  if (config->method.head == PETRA_HEAD_SPLIT)
    return petra_config_fail(config, "method.head",
                             "split with method.extra_delay, which already contains the tick of a split head; expected "
                             "preset (a split head alone is extra_delay: 1)");
  if (config->method.head == PETRA_HEAD_FUSED && at_last > 0)
    return petra_config_fail(config, "method.head",
                             "fused with method.extra_delay: %lld at the last stage, whose forward and backward are "
                             "then two actions; expected preset",
                             (long long)at_last);
  return PETRA_OK;
}

/* Adds method.extra_delay, and the kind of head that it requires, to a method that is otherwise complete. */
static petra_status set_extra_delay(const petra_config *config, petra_method *method) {
  const petra_int_list *extra = &config->method.extra_delay;
  for (int64_t i = 1; i < extra->count; i++)
    if (extra->values[i] > extra->values[i - 1])
      return petra_config_fail(config, "method.extra_delay",
                               "%lld of stage %lld is above the %lld of stage %lld, which would have to run its "
                               "backward before its gradient arrives; expected no more than that",
                               (long long)extra->values[i], (long long)i + 1, (long long)extra->values[i - 1],
                               (long long)i);
  if (extra->count == 0 || extra->values[0] == 0)
    return PETRA_OK;
  const int64_t at_last = extra->values[extra->count - 1];
  PETRA_TRY(check_order(config, method));
  PETRA_TRY(check_head(config, at_last));
  method->extra_delay = *extra;
  method->split_head |= at_last > 0;
  return PETRA_OK;
}

/* --- the whole method --- */

/* Checks the choices for local programs: every stage of a local program has its own head, which no other order has.
 * `local`: the preset's program is local. */
static petra_status check_local(const petra_config *config, const petra_method *method, bool local) {
  if (method->program->local != local)
    return petra_config_fail(config, "method.program", "%s with method %s, whose stages have %s; expected preset",
                             method->program->name, method->name,
                             local ? "losses of their own" : "no losses of their own");
  if (local && *config->method.schedule)
    return petra_config_fail(
        config, "method.schedule",
        "%s with method %s, whose stages have losses of their own; expected the method's own order",
        config->method.schedule, method->name);
  if (local && method->sync_period > 0)
    return petra_config_fail(config, "method.sync_period", "%lld with method %s, which has no delay; expected 0",
                             (long long)method->sync_period, method->name);
  return PETRA_OK;
}

petra_status petra_method_from_config(const petra_config *config, petra_method *out) {
  petra_method method;
  PETRA_TRY(find_preset(config, &method));
  const bool local = method.program->local;
  PETRA_TRY(override_program(config, &method));
  override_choices(config, &method);
  method.accumulate = config->method.accumulate;
  method.sync_period = config->method.sync_period;
  method.early_recompute = config->method.early_recompute;
  method.mitigation = config->method.mitigation;
  PETRA_TRY(check_choices(config, &method));
  PETRA_TRY(petra_mitigation_check(config, &method));
  expand(&method);
  if (config->method.head != PETRA_HEAD_PRESET)
    method.split_head = config->method.head == PETRA_HEAD_SPLIT;
  if (config->method.chunks > 0)
    method.chunks = (int32_t)config->method.chunks;
  PETRA_TRY(set_extra_delay(config, &method));
  PETRA_TRY(check_local(config, &method, local));
  *out = method;
  return PETRA_OK;
}

petra_status petra_method_check_stages(const petra_config *config, int32_t stages) {
  const int64_t count = config->method.extra_delay.count;
  if (count <= 1 || count == stages)
    return PETRA_OK;
  return petra_config_fail(config, "method.extra_delay",
                           "%lld numbers for %d stages; expected one per stage, or one for all", (long long)count,
                           stages);
}

void petra_method_fit(petra_method *method, int32_t stages) {
  petra_weights *const weights[] = {&method->forward_weights, &method->backward_weights, &method->invert_weights};
  for (int i = 0; i < 3 && stages == 1; i++)
    if (*weights[i] == PETRA_WEIGHTS_DOUBLE_BUFFER)
      *weights[i] = PETRA_WEIGHTS_LATEST;
}

bool petra_method_stashes(const petra_method *method) {
  return method->backward_weights == PETRA_WEIGHTS_STASHED || method->invert_weights == PETRA_WEIGHTS_STASHED;
}

petra_program_options petra_method_options(const petra_method *method, int32_t stages) {
  return (petra_program_options){.stages = stages,
                                 .chunks = method->chunks,
                                 .accumulate = method->accumulate,
                                 .split_head = method->split_head,
                                 .local = method->program->local,
                                 .extra_delay = method->extra_delay.values,
                                 .extra_delays = (int32_t)method->extra_delay.count};
}

int64_t petra_method_distance(const petra_method *method, int32_t stages, int32_t stage) {
  assert(stage >= 1 && stage <= stages);
  const petra_program_options options = petra_method_options(method, stages);
  return petra_program_delay(method->program, &options, stage);
}

int64_t petra_method_lag(const petra_method *method, int32_t stages, int32_t stage) {
  int64_t distance = petra_method_distance(method, stages, stage);
  if (distance < 0)
    return -1;
  if (method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER && method->program->delay)
    distance = stages - 1;
  if (method->sync_period > 0)
    distance += method->sync_period - 1;
  return (distance + method->accumulate - 1) / method->accumulate;
}

/* --- versions --- */

petra_status petra_forward_version(const petra_version_rule *rule, int32_t stage, int64_t microbatch, int64_t updates,
                                   int64_t *copy, int64_t *out) {
  int64_t version = updates;
  if (rule->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER) {
    version = petra_buffered_version(microbatch, rule->accumulate);
  } else if (rule->sync_period > 0) {
    if (microbatch % rule->sync_period == 0)
      *copy = updates;
    version = *copy;
  }
  if (version > updates)
    return petra_fail(PETRA_SCHEDULE,
                      "stage %d: microbatch %lld reads the weights after %lld updates, but only %lld were made; "
                      "expected at least one microbatch per stage between updates",
                      stage, (long long)microbatch, (long long)version, (long long)updates);
  *out = version;
  return PETRA_OK;
}

int64_t petra_backward_version(const petra_version_rule *rule, petra_weights weights, int64_t microbatch,
                               int64_t updates, int64_t forward) {
  if (weights == PETRA_WEIGHTS_STASHED)
    return forward;
  return weights == PETRA_WEIGHTS_DOUBLE_BUFFER ? petra_buffered_version(microbatch, rule->accumulate) : updates;
}
