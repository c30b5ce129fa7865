/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two configs key by key, and finds keys that have no effect. */
#include "config/config_private.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#include <string.h>

static int compare_lists(const void *a, int64_t a_count, const void *b, int64_t b_count, size_t size) {
  if (a_count != b_count || a_count == 0)
    return (a_count > b_count) - (a_count < b_count);
  return memcmp(a, b, (size_t)a_count * size);
}

/* Compares the bytes: every number has one form, since none is NaN or -0. */
int petra_config_compare_value(const petra_config_key *key, const petra_config *left, const petra_config *right) {
  const void *a = (const char *)left + key->offset, *b = (const char *)right + key->offset;
  const petra_int_list *integers[] = {a, b};
  const petra_real_list *reals[] = {a, b};
  const petra_period *periods[] = {a, b};
  switch (key->type) {
  case PETRA_KEY_STRING:
    return strcmp(*(char *const *)a, *(char *const *)b);
  case PETRA_KEY_INTEGER:
    return memcmp(a, b, sizeof(int64_t));
  case PETRA_KEY_REAL:
    return memcmp(a, b, sizeof(double));
  case PETRA_KEY_PERIOD:
    return periods[0]->unit != periods[1]->unit ? (int)periods[0]->unit - (int)periods[1]->unit
                                                : memcmp(a, b, sizeof(double));
  case PETRA_KEY_BOOLEAN:
    return memcmp(a, b, sizeof(bool));
  case PETRA_KEY_CHOICE:
  case PETRA_KEY_FLAG_LIST:
    return memcmp(a, b, sizeof(unsigned));
  case PETRA_KEY_INTEGER_LIST:
    return integers[0]->word != integers[1]->word
               ? integers[0]->word - integers[1]->word
               : compare_lists(integers[0]->values, integers[0]->count, integers[1]->values, integers[1]->count,
                               sizeof(int64_t));
  case PETRA_KEY_REAL_LIST:
    return compare_lists(reals[0]->values, reals[0]->count, reals[1]->values, reals[1]->count, sizeof(double));
  }
  return 0;
}

/* Prints as much of the value as fits; "" if memory ran out. */
static void print_start(const petra_config_key *key, const petra_config *config, char out[PETRA_CONFIG_VALUE]) {
  memset(out, 0, PETRA_CONFIG_VALUE);
  FILE *stream = fmemopen(out, PETRA_CONFIG_VALUE - 1, "w");
  if (!stream)
    return;
  petra_config_print_value(key, config, stream);
  fclose(stream);
}

int petra_config_compare(const petra_config *a, const petra_config *b, petra_config_role last,
                         petra_config_difference *difference) {
  const petra_config_key *key = petra_config_keys, *end = key + petra_config_key_count;
  int order = 0;
  for (; key < end && order == 0; key++) {
    if (key->role <= last)
      order = petra_config_compare_value(key, a, b);
    if (order != 0 && difference) {
      difference->key = key->path;
      print_start(key, a, difference->a);
      print_start(key, b, difference->b);
    }
  }
  return order;
}

typedef struct key_value {
  const petra_config_key *key;
  const petra_config *config;
} key_value;

static petra_status print_value(const void *context, FILE *out) {
  const key_value *value = context;
  petra_config_print_value(value->key, value->config, out);
  return PETRA_OK;
}

static petra_status report_key(const petra_config_key *key, const petra_config *const *configs, int count,
                               petra_config_reporter report, void *context) {
  char **values;
  size_t size;
  PETRA_TRY(petra_allocate(&values, (size_t)count, sizeof *values));
  petra_status status = PETRA_OK;
  for (int i = 0; i < count && status == PETRA_OK; i++)
    status = petra_text_print(print_value, &(key_value){key, configs[i]}, key->path, &values[i], &size);
  if (status == PETRA_OK)
    status = report(context, key->path, key->role, values);
  for (int i = 0; i < count; i++)
    petra_free(values[i]);
  petra_free(values);
  return status;
}

petra_status petra_config_report_differences(const petra_config *const *configs, int count,
                                             petra_config_reporter report, void *context) {
  for (int k = 0; k < petra_config_key_count; k++) {
    const petra_config_key *key = &petra_config_keys[k];
    bool same = true;
    for (int i = 1; i < count && same; i++)
      same = petra_config_compare_value(key, configs[0], configs[i]) == 0;
    if (!same)
      PETRA_TRY(report_key(key, configs, count, report, context));
  }
  return PETRA_OK;
}

static bool is_listed(const char *const *listed, const char *path) {
  while (*listed && strcmp(*listed, path) != 0)
    listed++;
  return *listed != NULL;
}

petra_status petra_config_plain(const petra_config *config, petra_config **out) {
  char text[64];
  const int length = snprintf(text, sizeof text, "optim: {name: %s, lr: 0.1}", config->optim.name);
  return petra_config_load_text(&(petra_config_text){"defaults", text, (size_t)length}, NULL, 0, out);
}

petra_status petra_config_print_changes(const petra_config *config, const char *prefix, const char *const *listed,
                                        const char *before, FILE *out) {
  petra_config *plain;
  PETRA_TRY(petra_config_plain(config, &plain));
  for (int i = 0; i < petra_config_key_count; i++) {
    const petra_config_key *key = &petra_config_keys[i];
    if (strncmp(key->path, prefix, strlen(prefix)) != 0 || is_listed(listed, key->path) ||
        petra_config_compare_value(key, config, plain) == 0)
      continue;
    fprintf(out, "%s%s: ", before, key->path);
    petra_config_print_value(key, config, out);
    before = ", ";
  }
  petra_config_destroy(plain);
  return PETRA_OK;
}

petra_status petra_config_compare_text(const char *path, const char *text, const petra_config *b,
                                       petra_config_role last, int *order, petra_config_difference *difference) {
  petra_config *a;
  PETRA_TRY(petra_config_load_text(&(petra_config_text){path, text, strlen(text)}, NULL, 0, &a));
  *order = petra_config_compare(a, b, last, difference);
  petra_config_destroy(a);
  return PETRA_OK;
}

/* --- keys that have no effect because of the value of another key --- */

/* `key` has an effect only if the choice `others[0]` is one of `values` or, without values, if any of `others` does not
 * have its default. A message names the first two. */
typedef struct need {
  const char *key, *others[3], *values[2];
} need;

static const need needs[] = {
    {"data.image_size", {"data.set"}, {"imagefolder"}},
    {"data.resize", {"data.set"}, {"imagefolder"}},
    {"data.eval_path", {"data.set"}, {"text", "tokens"}},
    {"data.eval_share", {"data.set"}, {"text", "tokens"}},
    {"data.vocabulary", {"data.set"}, {"tokens"}},
    {"stages.blocks", {"stages.partition"}, {"list"}},
    {"cluster.cost.forward_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.backward_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.reconstruct_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.weight_gradient_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.update_s", {"cluster.cost.model"}, {"constant"}},
    {"cluster.cost.device", {"cluster.cost.model"}, {"roofline", "kernels"}},
    {"cluster.cost.arithmetic", {"cluster.cost.model"}, {"roofline", "kernels"}},
    {"cluster.cost.profile", {"cluster.cost.model"}, {"profile"}},
    {"cluster.cost.launch_s", {"cluster.cost.model"}, {"kernels"}},
    {"cluster.cost.efficiency.matrix_flops", {"cluster.cost.model"}, {"kernels"}},
    {"cluster.cost.efficiency.matrix_bytes", {"cluster.cost.model"}, {"kernels"}},
    {"cluster.cost.efficiency.elementwise_bytes", {"cluster.cost.model"}, {"kernels"}},
    {"cluster.host.share", {"cluster.host.action_s", "cluster.host.kernel_s"}, {NULL}},
    {"cluster.host.ahead", {"cluster.host.action_s", "cluster.host.kernel_s"}, {NULL}},
    {"cluster.link.sharing", {"cluster.link.bandwidth_Bps", "cluster.card_Bps", "cluster.cost.profile"}, {NULL}},
    {"cluster.node_link.preset", {"cluster.node_size"}, {NULL}},
    {"cluster.jitter.scale", {"cluster.jitter.model"}, {NULL}},
    {"cluster.stragglers.factor", {"cluster.stragglers.stages"}, {NULL}},
    {"cluster.pauses.duration_s", {"cluster.pauses.mean_between_s"}, {NULL}},
    {"cluster.failures.restart_s", {"cluster.failures.mean_between_s"}, {NULL}},
    {"probe.gradients", {"probe.per_epoch"}, {NULL}},
};

static petra_status is_met(const petra_config *config, const need *n, bool *out) {
  *out = false;
  for (int i = 0; !n->values[0] && i < 3 && n->others[i] && !*out; i++)
    PETRA_TRY(petra_config_changed(config, n->others[i], out));
  const petra_config_key *other = &petra_config_keys[petra_config_key_find(n->others[0])];
  for (int i = 0; i < 2 && n->values[i]; i++)
    *out |= strcmp(other->choices[*(const unsigned *)(const void *)((const char *)config + other->offset)],
                   n->values[i]) == 0;
  return PETRA_OK;
}

/* Returns true if the command line replaces the value of the file that the key belongs to. */
static bool is_overridden(const petra_config *config, const need *n) {
  const char *label = config->labels[petra_config_key_find(n->key)];
  const char *other = config->labels[petra_config_key_find(n->others[0])];
  return other && strncmp(other, "--set ", 6) == 0 && label && strncmp(label, "--set ", 6) != 0;
}

petra_status petra_config_warn_idle(const petra_config *config) {
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    const need *n = &needs[i];
    const char *label = config->labels[petra_config_key_find(n->key)];
    bool changed, met;
    PETRA_TRY(petra_config_changed(config, n->key, &changed));
    PETRA_TRY(is_met(config, n, &met));
    if (!changed || met || is_overridden(config, n))
      continue;
    petra_log(PETRA_LOG_WARNING, "%s: has no effect; expected %s%s%s%s%s beside it", label ? label : n->key,
              n->others[0],
              n->values[0]   ? ": "
              : n->others[1] ? " or "
                             : "",
              n->values[0]   ? n->values[0]
              : n->others[1] ? n->others[1]
                             : "",
              n->values[0] && n->values[1] ? " or " : "", n->values[0] && n->values[1] ? n->values[1] : "");
  }
  return PETRA_OK;
}
