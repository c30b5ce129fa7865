/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that have no effect because of the value of another key. */
#include "base/log.h"
#include "config/keys.h"

#include <string.h>

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
