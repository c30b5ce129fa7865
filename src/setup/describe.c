/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/describe.h"

#include "backend/quantise.h"
#include "base/utf8.h"
#include "nn/model.h"

#include <inttypes.h>
#include <string.h>

void petra_describe_network(const petra_config *config, FILE *out) {
  if (config->cluster.stages > 0)
    fputs("equal stages, no model", out);
  else
    petra_model_describe(config, out);
}

petra_status petra_describe_method(const petra_config *config, FILE *out) {
  static const char *const said[] = {"method.name", "method.accumulate", NULL};
  fprintf(out, "%s, k = %" PRId64, config->method.name, config->method.accumulate);
  return petra_config_print_changes(config, "method.", said, ", with ", out);
}

petra_status petra_describe_costs(const petra_config *config, FILE *out) {
  static const char *const changed[] = {"cluster.speeds",  "cluster.jitter.",   "cluster.stragglers.",
                                        "cluster.pauses.", "cluster.failures.", "cluster.host."};
  const bool roofline = config->cluster.cost.model == PETRA_COST_ROOFLINE;
  switch (config->cluster.cost.model) {
  case PETRA_COST_UNIT:
    fputs("unit (seconds: forward 1, backward 2, reconstruction or recomputation 1, update 0)", out);
    break;
  case PETRA_COST_CONSTANT:
    fprintf(out, "constant (seconds: forward %g, backward %g, reconstruction or recomputation %g, update %g)",
            config->cluster.cost.forward_s, config->cluster.cost.backward_s, config->cluster.cost.reconstruct_s,
            config->cluster.cost.update_s);
    break;
  case PETRA_COST_ROOFLINE:
  case PETRA_COST_KERNELS:
    fprintf(out, "%s of device %s in %s%s", roofline ? "roofline" : "kernels",
            petra_config_choice_name("cluster.cost.device", (int)config->cluster.cost.device),
            petra_config_choice_name("cluster.cost.arithmetic", (int)config->cluster.cost.arithmetic),
            roofline ? ", a lower bound" : "");
    if (roofline)
      break;
    PETRA_TRY(petra_config_print_changes(config, "cluster.cost.launch_s", (const char *const[]){NULL}, ", ", out));
    PETRA_TRY(petra_config_print_changes(config, "cluster.cost.efficiency.", (const char *const[]){NULL}, ", ", out));
    break;
  case PETRA_COST_PROFILE:
    fprintf(out, "measured by petra profile (%s)", config->cluster.cost.profile);
    break;
  case PETRA_COST_MEASURED:
    fputs("the measured time of each action", out);
    break;
  }
  for (size_t i = 0; i < sizeof changed / sizeof *changed; i++)
    PETRA_TRY(petra_config_print_changes(config, changed[i], (const char *const[]){NULL}, "; ", out));
  return PETRA_OK;
}

static void print_rate(const char *what, double bytes_per_s, FILE *out) {
  if (bytes_per_s > 0)
    fprintf(out, "%s %g B/s", what, bytes_per_s);
  else
    fprintf(out, "%s infinite", what);
}

/* Prints the latency and the bandwidth of a link, and the preset from which they come. */
static void print_link(int preset, double latency_s, double bandwidth_Bps, FILE *out) {
  fprintf(out, "latency %g s, ", latency_s);
  print_rate("bandwidth", bandwidth_Bps, out);
  const petra_link_preset *link = petra_link_preset_of(preset);
  const bool latency = latency_s == link->latency_s, bandwidth = bandwidth_Bps == link->bandwidth_Bps;
  if (preset == PETRA_LINK_NONE || (!latency && !bandwidth))
    return;
  fprintf(out, " (%s%s)", link->name,
          latency && bandwidth ? ""
          : latency            ? " but for the bandwidth"
                               : " but for the latency");
}

/* Prints the nodes, unless each device has its own node and no card. */
static void print_nodes(const petra_config *config, FILE *out) {
  const bool link = config->cluster.node_link.preset != PETRA_NODE_LINK_SAME;
  const int64_t devices = config->cluster.node_size;
  if (devices == 1 && config->cluster.card_Bps == 0 && !link)
    return;
  fprintf(out, "; nodes of %" PRId64 ", ", devices);
  print_rate("card", config->cluster.card_Bps, out);
  if (link && devices == 1)
    fputs(", no link inside", out);
  else if (link) {
    fputs(", inside: ", out);
    print_link((int)config->cluster.node_link.preset, config->cluster.node_link.latency_s,
               config->cluster.node_link.bandwidth_Bps, out);
  }
}

static const char *message_format(const petra_config *config, petra_format choice) {
  const petra_format format = petra_format_in(choice, config->device.precision);
  const bool wide = config->device.precision == PETRA_PRECISION_FP64;
  if (format != PETRA_FORMAT_NATIVE)
    return petra_config_choice_name("cluster.message.up", (int)format);
  return petra_config_choice_name("device.precision", wide ? PETRA_PRECISION_FP64 : PETRA_PRECISION_FP32);
}

const char *petra_describe_message_precision(const petra_config *config, char text[PETRA_DESCRIBE_MESSAGES]) {
  const char *up = message_format(config, config->cluster.message.up);
  const char *down = message_format(config, config->cluster.message.down);
  if (config->cluster.stages > 0)
    return NULL;
  snprintf(text, PETRA_DESCRIBE_MESSAGES, strcmp(up, down) == 0 ? "%s" : "%s up, %s down", up, down);
  return text;
}

/* Returns true if numbers inside blocks have 2 bytes, in the computation or in the costs. */
static bool is_narrow(const petra_config *config) {
  const petra_cost_model model = config->cluster.cost.model;
  const bool priced = (model == PETRA_COST_ROOFLINE || model == PETRA_COST_KERNELS) &&
                      config->cluster.cost.arithmetic == PETRA_COST_BF16;
  return priced || config->device.precision == PETRA_PRECISION_BF16;
}

const char *petra_describe_messages(const petra_config *config, char text[PETRA_DESCRIBE_MESSAGES]) {
  const petra_precision precision = config->device.precision;
  const bool native = petra_format_in(config->cluster.message.up, precision) == PETRA_FORMAT_NATIVE &&
                      petra_format_in(config->cluster.message.down, precision) == PETRA_FORMAT_NATIVE;
  return native && !is_narrow(config) ? NULL : petra_describe_message_precision(config, text);
}

void petra_describe_numbers(const petra_config *config, FILE *out) {
  char text[PETRA_DESCRIBE_MESSAGES];
  const char *messages = petra_describe_messages(config, text);
  if (messages && is_narrow(config))
    fprintf(out, "numbers  bf16 inside blocks, messages %s\n", messages);
  else if (messages)
    fprintf(out, "numbers  %s, messages %s\n",
            petra_config_choice_name("device.precision", (int)config->device.precision), messages);
}

static void print_links(const petra_config *config, FILE *out) {
  print_link((int)config->cluster.link.preset, config->cluster.link.latency_s, config->cluster.link.bandwidth_Bps, out);
  if (config->cluster.link.sharing != PETRA_LINK_FIFO)
    fprintf(out, ", %s", petra_config_choice_name("cluster.link.sharing", (int)config->cluster.link.sharing));
  print_nodes(config, out);
}

void petra_describe_links(const petra_config *config, bool measured, FILE *out) {
  char text[PETRA_DESCRIBE_MESSAGES];
  const char *messages = petra_describe_messages(config, text);
  if (measured)
    fputs("as the profile measured between processes", out);
  else
    print_links(config, out);
  if (messages)
    fprintf(out, "; messages %s", messages);
}

void petra_describe_data(const petra_config *config, FILE *out) {
  const petra_data_set set = config->data.set;
  const petra_sample_kind samples = petra_sample_kind_of(config);
  fputs(petra_config_choice_name("data.set", (int)set), out);
  if (set != PETRA_SET_SHAPES && set != PETRA_SET_GRAMMAR) /* these data sets are generated, not read */
    petra_utf8_print(out, " of %s", config->data.path);
  if (samples == PETRA_SAMPLE_TOKENS)
    fprintf(out, ", windows of %" PRId64 " tokens", config->model.context);
  if (config->data.limit > 0)
    fprintf(out, ", the first %" PRId64 " %s", config->data.limit, petra_sample_words_of(samples)->samples);
}

petra_status petra_describe_optimiser(const petra_config *config, FILE *out) {
  static const char *const said[] = {"optim.name", "optim.lr", NULL};
  fprintf(out, "%s, lr %g", config->optim.name, config->optim.lr);
  return petra_config_print_changes(config, "optim.", said, ", with ", out);
}

/* Counts the equal neighbours from `at` on that are merged in the list. */
static int together(const int64_t *values, int count, int maximum, int at) {
  int found = 1;
  while (count > maximum && at + found < count && values[at + found] == values[at])
    found++;
  return found;
}

void petra_describe_list(const int64_t *values, int count, int maximum, FILE *out) {
  int places = 0;
  for (int i = 0; i < count; i += together(values, count, maximum, i))
    places++;
  for (int i = 0, place = 0; i < count; place++) {
    const int equal = together(values, count, maximum, i);
    if (places <= maximum || place < maximum - 1 || place == places - 1) {
      fprintf(out, i > 0 ? ", %" PRId64 : "%" PRId64, values[i]);
      if (equal > 1)
        fprintf(out, " (x %d)", equal);
    } else if (place == maximum - 1) {
      fputs(", ...", out);
    }
    i += equal;
  }
}
