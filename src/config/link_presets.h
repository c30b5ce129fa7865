/* SPDX-License-Identifier: Apache-2.0 */
/* Links by name (cluster.link.preset): latency and bandwidth, with their sources. */
#pragma once

typedef struct petra_link_preset {
  const char *name;
  double latency_s;     /* from the end of a transmission to its arrival */
  double bandwidth_Bps; /* in each direction; 0: infinite */
  const char *bandwidth_source, *latency_source;
} petra_link_preset;

/* Returns the preset of a petra_link_preset_choice (config/config.h), 0 .. count - 1. */
const petra_link_preset *petra_link_preset_of(int choice);
int petra_link_preset_count(void);
