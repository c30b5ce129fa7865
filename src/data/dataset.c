#include "data/dataset.h"

#include "base/log.h"
#include "data/cifar.h"
#include "data/shapes.h"

petra_status petra_dataset_open(const petra_config *config, petra_split split, petra_dataset **out) {
  int64_t limit = split == PETRA_SPLIT_TRAIN ? config->data.limit : config->data.eval_limit;
  switch (config->data.set) {
  case PETRA_SET_CIFAR10:
    return petra_cifar_open(PETRA_CIFAR10, config->data.path, split, limit, out);
  case PETRA_SET_CIFAR100:
    return petra_cifar_open(PETRA_CIFAR100, config->data.path, split, limit, out);
  case PETRA_SET_SHAPES:
    return petra_shapes_open(split, limit, out);
  }
  return petra_fail(PETRA_INTERNAL, "data.set: value %d has no data set", (int)config->data.set);
}

void petra_dataset_destroy(petra_dataset *set) {
  if (set)
    set->ops->destroy(set);
}
