/* SPDX-License-Identifier: Apache-2.0 */
/* petra info: version, backends, libraries, devices. */
#include "backend/backend.h"
#include "backend/registry.h"
#include "base/json.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "base/release.h"
#include "cli/command.h"
#include "record/run_h5.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const petra_backend_kind backends[] = {PETRA_BACKEND_REF, PETRA_BACKEND_CPU, PETRA_BACKEND_CUDA};
enum { BACKENDS = sizeof backends / sizeof *backends };

/* Returns the number of backends that can compute here: the last one needs a device. */
static int backends_here(void) {
  char text[320];
  return petra_cuda_devices(text, sizeof text) > 0 ? BACKENDS : BACKENDS - 1;
}

/* Gets the processor's name from Linux. */
static void processor_name(char *text, size_t size) {
  char line[512];
  snprintf(text, size, "unknown processor");
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (!file)
    return;
  while (fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) == 0 && colon) {
      line[strcspn(line, "\n")] = 0;
      snprintf(text, size, "%s", colon + 2);
      break;
    }
  }
  fclose(file);
}

/* Formats "0.1.0", or "0.1.0 (commit)" if the commit is known. */
static void describe_version(char *text, size_t size) {
  const char *commit = petra_version_git_commit();
  if (strcmp(commit, "unknown") == 0)
    snprintf(text, size, "%s", petra_version());
  else
    snprintf(text, size, "%s (%s)", petra_version(), commit);
}

/* Describes a backend, in fp64 if the backend supports it: ref computes in fp64 as the reference for the other
 * backends. */
static petra_status describe_backend(petra_backend_kind kind, int threads, char *text, size_t size) {
  const bool wide = petra_precision_find(kind, PETRA_PRECISION_FP64);
  petra_backend *backend;
  PETRA_TRY(petra_backend_create(kind, wide ? PETRA_PRECISION_FP64 : PETRA_PRECISION_FP32, threads, true, &backend));
  backend->ops->describe(backend, text, size);
  petra_backend_destroy(backend);
  return PETRA_OK;
}

static void print_cuda(void) {
  char text[320];
  petra_cuda_describe_build(text, sizeof text);
  petra_utf8_print(stdout, "cuda       %s\n", text);
  int devices = petra_cuda_devices(text, sizeof text);
  if (devices == 0)
    petra_utf8_print(stdout, "           %s\n", text);
  for (int i = 0; i < devices; i++) {
    petra_cuda_describe_device(i, text, sizeof text);
    petra_utf8_print(stdout, "           device %d: %s\n", i, text);
  }
}

/* Returns {"build": text, "devices": [text, ...], "no_device": the reason if there is none}. */
static json_t *cuda_json(void) {
  char text[320];
  petra_cuda_describe_build(text, sizeof text);
  json_t *build = petra_json_string(text), *list = json_array();
  int devices = petra_cuda_devices(text, sizeof text);
  if (devices == 0)
    return json_pack("{s:o, s:o, s:o}", "build", build, "devices", list, "no_device", petra_json_string(text));
  for (int i = 0; i < devices; i++) {
    petra_cuda_describe_device(i, text, sizeof text);
    petra_json_append(&list, petra_json_string(text));
  }
  return json_pack("{s:o, s:o}", "build", build, "devices", list);
}

static petra_status run(const petra_arguments *arguments) {
  char version[128], libraries[256], processor[256], text[BACKENDS][256];
  const int cores = petra_threads_cores(), threads = petra_threads_allowed(cores), count = backends_here();
  describe_version(version, sizeof version);
  petra_libraries_describe(libraries, sizeof libraries);
  processor_name(processor, sizeof processor);
  for (int i = 0; i < count; i++)
    PETRA_TRY(describe_backend(backends[i], threads, text[i], sizeof text[i]));
  if (!arguments->json) {
    petra_utf8_print(stdout, "petra      %s\n", version);
    for (int i = 0; i < count; i++)
      petra_utf8_print(stdout, "%-10s %s\n", i ? "" : "backends", text[i]);
    petra_utf8_print(stdout, "libraries  %s\n", libraries);
    petra_utf8_print(stdout, "device     %s, %d core%s for this process\n", processor, cores, cores == 1 ? "" : "s");
    print_cuda();
    return PETRA_OK;
  }
  json_t *list = json_array();
  for (int i = 0; i < count; i++) {
    char precisions[64];
    petra_precision_list(backends[i], precisions, sizeof precisions);
    petra_json_append(&list,
                      json_pack("{s:s, s:s, s:o}", "name", petra_config_choice_name("device.backend", (int)backends[i]),
                                "precisions", precisions, "description", petra_json_string(text[i])));
  }
  return petra_json_print_new(json_pack("{s:o, s:o, s:o, s:o, s:i, s:o}", "version", petra_json_string(version),
                                        "backends", list, "libraries", petra_json_string(libraries), "processor",
                                        petra_json_string(processor), "cores", cores, "cuda", cuda_json()));
}

const petra_command petra_command_info = {
    .name = "info",
    .summary = "prints version, backends, libraries and devices",
    .arguments = "[--json]",
    .help = "Prints the properties of this build and machine: the backends with their precisions, the libraries with\n"
            "their versions, the number of OpenMP threads, the processor and the number of cores that this process\n"
            "may use, and CUDA with its libraries and devices.",
    .run = run};
