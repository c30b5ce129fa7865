/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/presets.h"

#include "config/link_presets.h"
#include "config/optimiser.h"
#include "sim/roofline.h"

#include <string.h>

/* Of convolutions and products; "-": the device has no units for it. */
static void print_peak(FILE *out, double flops) {
  if (flops > 0)
    fprintf(out, " %g |", 1e-12 * flops);
  else
    fputs(" - |", out);
}

static void print_optimisers(FILE *out) {
  fputs("\n`optim.name`: the keys that each optimiser has beside `optim.lr`, `optim.decay_norm_and_bias` and "
        "`optim.clip`, with its\n"
        "defaults.\n\n| optimiser | keys |\n|---|---|\n",
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
  fputs(
      "`cluster.cost.device`: peaks of convolutions and products in TFLOP/s by `cluster.cost.arithmetic`, and of the\n"
      "device's memory in GB/s.\n\n"
      "| device | fp32 | tf32 | bf16 | memory | source |\n|---|---|---|---|---|---|\n",
      out);
  for (int d = 0; (device = petra_device_peaks_at(d)); d++) {
    fprintf(out, "| %s |", device->name);
    for (int a = 0; a < PETRA_COST_ARITHMETICS; a++)
      print_peak(out, device->matrix_flops[a]);
    fprintf(out, " %g | %s |\n", 1e-9 * device->bandwidth_Bps, device->source);
  }
  fputs("\n`cluster.link.preset`: in each direction.\n\n"
        "| link | `bandwidth_Bps` | source | `latency_s` | source |\n|---|---|---|---|---|\n",
        out);
  for (int p = 1; p < petra_link_preset_count(); p++) { /* 0: none */
    const petra_link_preset *link = petra_link_preset_of(p);
    fprintf(out, "| %s | %g | %s | %g | %s |\n", link->name, link->bandwidth_Bps, link->bandwidth_source,
            link->latency_s, link->latency_source);
  }
  print_optimisers(out);
}
