/* SPDX-License-Identifier: Apache-2.0 */
/* dump_shapes train|eval COUNT FILE: writes the first images of the generated set in CIFAR-10's binary
 * format. */
#include "base/mem.h"
#include "data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS = 3 * 32 * 32 };

static int dump(const petra_dataset *set, FILE *file) {
  uint8_t record[1 + PIXELS];
  for (int64_t i = 0; i < set->count; i++) {
    int32_t label;
    if (set->ops->read(set, i, record + 1, &label) != PETRA_OK)
      return EXIT_FAILURE;
    record[0] = (uint8_t)label;
    if (fwrite(record, sizeof record, 1, file) != 1)
      return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
  petra_dataset *set = NULL;
  petra_config config = {.data = {.set = PETRA_SET_SHAPES}};
  if (argc != 4) {
    fprintf(stderr, "usage: dump_shapes train|eval COUNT FILE\n");
    return 2;
  }
  petra_split split = strcmp(argv[1], "eval") == 0 ? PETRA_SPLIT_EVAL : PETRA_SPLIT_TRAIN;
  config.data.limit = config.data.eval_limit = strtoll(argv[2], NULL, 10);
  FILE *file = fopen(argv[3], "wb");
  if (!file) {
    perror(argv[3]);
    return EXIT_FAILURE;
  }
  int code = petra_dataset_open(&config, split, &set) == PETRA_OK ? dump(set, file) : EXIT_FAILURE;
  petra_dataset_destroy(set);
  if (fclose(file) != 0)
    code = EXIT_FAILURE;
  return code;
}
