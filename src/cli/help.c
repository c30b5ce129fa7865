/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the help of a subcommand and its completion from the same table, and the named devices, links and
 * optimisers. */
#include "cli/command.h"

#include "config/optimiser.h"
#include "schedule/method.h"
#include "sim/cost.h"

#include <stdio.h>
#include <string.h>

/* Prints a text that begins at a column, in lines of at most WIDTH columns. */
static void print_wrapped(const char *text, int column) {
  enum { WIDTH = 108, INDENT = 18 };
  while (*text) {
    const int word = (int)strcspn(text, " ");
    if (column + 1 + word > WIDTH)
      column = printf("\n%*s", INDENT, "") - 1;
    column += printf(" %.*s", word, text);
    text += word + (int)strspn(text + word, " ");
  }
  putchar('\n');
}

void petra_help_print(const petra_command *command, const petra_option *const *options, int count) {
  printf("usage: petra %s%s%s\n\n%s\noptions:\n", command->name, *command->arguments ? " " : "", command->arguments,
         command->help);
  for (int i = 0; i < count; i++) {
    char name[48];
    snprintf(name, sizeof name, "%s%s%s", options[i]->name, options[i]->value ? " " : "",
             options[i]->value ? options[i]->value : "");
    if (options[i]->help)
      print_wrapped(options[i]->help, printf("  --%-13s ", name));
  }
}

/* --- the words that the completion of shells offers (scripts/completion) --- */
/* Prints the single actions of a list such as "verify, convert or generate". */
static void print_actions(const petra_command *command) {
  for (const char *text = command->actions; *text;) {
    const size_t word = strcspn(text, ", ");
    if (word > 0 && !(word == 2 && strncmp(text, "or", 2) == 0))
      printf("action %.*s %s\n", (int)word, text, command->name);
    text += word + strspn(text + word, ", ");
  }
}

void petra_completion_print(const petra_command *command, const petra_option *const *options, int count) {
  printf("command %s %s\n", command->name, command->summary);
  if (command->actions)
    print_actions(command);
  for (int i = 0; i < count; i++)
    if (options[i]->help)
      printf("option --%s %s%s%s\n", options[i]->name, command->name, options[i]->value ? " " : "",
             options[i]->value ? options[i]->value : "");
}

/* Prints the values of string keys that are names from another table. */
static bool print_names(FILE *out, const char *path) {
  const bool programs = strcmp(path, "method.program") == 0;
  if (!programs && strcmp(path, "method.name") != 0)
    return false;
  if (programs)
    fputs(" preset", out);
  for (int i = 0; i < (programs ? petra_program_count() : petra_method_count()); i++)
    fprintf(out, " %s", programs ? petra_program_get(i)->name : petra_method_get(i).name);
  return true;
}

void petra_completion_print_keys(void) {
  petra_config_help_words(stdout, print_names);
}

/* Prints a figure of a device; "-": the device has none. */
static void print_figure(FILE *out, double figure) {
  if (figure > 0)
    fprintf(out, " %g |", figure);
  else
    fputs(" - |", out);
}

static void print_optimisers(FILE *out) {
  fputs("\n`optim.name`: the keys of each optimiser with their defaults. Every optimiser also has `optim.lr`,\n"
        "`optim.decay_norm_and_bias` and `optim.clip`.\n\n| optimiser | keys |\n|---|---|\n",
        out);
  for (int i = 0; petra_optimiser_names[i]; i++) {
    const char *separator = " ";
    fprintf(out, "| %s |", petra_optimiser_names[i]);
    for (const petra_optimiser_key *key = petra_optimiser_of((petra_optimiser_kind)i)->keys; key->path; key++) {
      fprintf(out, "%s`%s: %s`", separator, key->path + strlen("optim."), key->default_value);
      separator = ", ";
    }
    fputs(" |\n", out);
  }
}

void petra_presets_print(bool markdown, FILE *out) {
  const petra_device_peaks *device;
  fputs(markdown ? "\n## Devices, links and optimisers by name\n\n" : "\nDevices, links and optimisers by name.\n\n",
        out);
  fputs("`cluster.cost.device`: peak rates of convolutions and matrix products in TFLOP/s for each\n"
        "`cluster.cost.arithmetic`, without sparsity; memory bandwidth in GB/s and size in GB. NVIDIA's\n"
        "matrix units have no fp32, so that fp32 is the peak of the vector units there. A dash means that\n"
        "there is no such figure.\n\n"
        "| device | fp32 | tf32 | bf16 | bandwidth | memory | source |\n|---|---|---|---|---|---|---|\n",
        out);
  for (int d = 0; (device = petra_device_peaks_at(d)); d++) {
    fprintf(out, "| %s |", device->name);
    for (int a = 0; a < PETRA_COST_ARITHMETICS; a++)
      print_figure(out, 1e-12 * device->matrix_flops[a]);
    fprintf(out, " %g |", 1e-9 * device->bandwidth_Bps);
    print_figure(out, 1e-9 * device->memory_bytes);
    fprintf(out, " %s |\n", device->source);
  }
  fputs("\n`cluster.link.preset`, `cluster.node_link.preset`: rates per direction.\n\n"
        "| link | `bandwidth_Bps` | source | `latency_s` | source |\n|---|---|---|---|---|\n",
        out);
  for (int p = 1; p < petra_link_preset_count(); p++) { /* 0: none */
    const petra_link_preset *link = petra_link_preset_of(p);
    fprintf(out, "| %s | %g | %s | %g | %s |\n", link->name, link->bandwidth_Bps, link->bandwidth_source,
            link->latency_s, link->latency_source);
  }
  print_optimisers(out);
}
