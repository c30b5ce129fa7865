/* SPDX-License-Identifier: Apache-2.0 */
#include "config/link_presets.h"

/* Bandwidths are those of the standard or the data sheet, in each direction, not what a program achieves. No vendor
 * states the latency from program to program, so that latencies without a source are assumptions, in round numbers. The
 * order is that of the key's choices (keys.c). */
static const char assumed[] = "assumption";
static const petra_link_preset presets[] = {
    {"none", 0, 0, "ideal", "ideal"},
    {"nvlink3", 2e-6, 300e9, "NVIDIA A100, data sheet of June 2021: NVLink 600 GB/s, half in each direction", assumed},
    {"nvlink4", 2e-6, 450e9, "NVIDIA H100 SXM, data sheet: NVLink 900 GB/s, half in each direction", assumed},
    {"pcie4-x16", 5e-6, 31.5e9, "PCI Express 4.0: 16 lanes of 16 GT/s, 128 of 130 bits are data", assumed},
    {"pcie5-x16", 5e-6, 63e9, "PCI Express 5.0: 16 lanes of 32 GT/s, 128 of 130 bits are data", assumed},
    {"10gbe", 20e-6, 1.25e9, "IEEE 802.3ae: 10 Gbit/s",
     "Hurwitz and Feng, Hot Interconnects 11 (2003): measured between applications"},
    {"100gbe", 10e-6, 12.5e9, "IEEE 802.3ba: 100 Gbit/s", assumed},
    {"ib-ndr", 2e-6, 50e9, "NVIDIA ConnectX-7, user manual: NDR 400 Gbit/s", assumed},
    {"wan", 25e-3, 125e6, "assumption: 1 Gbit/s", "assumption: a few thousand kilometres of fibre"},
};

const petra_link_preset *petra_link_preset_of(int choice) {
  return &presets[choice];
}

int petra_link_preset_count(void) {
  return sizeof presets / sizeof *presets;
}
