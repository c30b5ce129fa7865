/* Two configs, key by key. */
#include "base/config_keys.h"

#include <string.h>

static int order_of(bool less, bool more) {
  return less ? -1 : more;
}

static int compare_integers(int64_t a, int64_t b) {
  return order_of(a<b, a> b);
}

static int compare_reals(double a, double b) {
  return order_of(a<b, a> b);
}

static int compare_integer_lists(const petra_int_list *a, const petra_int_list *b) {
  int order = compare_integers(a->count, b->count);
  for (int64_t i = 0; i < a->count && order == 0; i++)
    order = compare_integers(a->values[i], b->values[i]);
  return order;
}

static int compare_real_lists(const petra_real_list *a, const petra_real_list *b) {
  int order = compare_integers(a->count, b->count);
  for (int64_t i = 0; i < a->count && order == 0; i++)
    order = compare_reals(a->values[i], b->values[i]);
  return order;
}

static int compare_values(const petra_config_key *key, const void *a, const void *b) {
  unsigned bits[2] = {0, 0};
  switch (key->type) {
  case PETRA_KEY_STRING:
    return strcmp(*(char *const *)a, *(char *const *)b);
  case PETRA_KEY_INTEGER:
    return compare_integers(*(const int64_t *)a, *(const int64_t *)b);
  case PETRA_KEY_REAL:
    return compare_reals(*(const double *)a, *(const double *)b);
  case PETRA_KEY_BOOLEAN:
    return compare_integers(*(const bool *)a, *(const bool *)b);
  case PETRA_KEY_CHOICE:
  case PETRA_KEY_FLAG_LIST:
    memcpy(&bits[0], a, sizeof bits[0]);
    memcpy(&bits[1], b, sizeof bits[1]);
    return compare_integers(bits[0], bits[1]);
  case PETRA_KEY_INTEGER_LIST:
    return compare_integer_lists(a, b);
  case PETRA_KEY_REAL_LIST:
    return compare_real_lists(a, b);
  }
  return 0;
}

/* As much of the value as has room; "" where memory ran out. */
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
  int count = 0, order = 0;
  const petra_config_key *key = petra_config_keys(&count), *end = key + count;
  for (; key < end && order == 0; key++) {
    if (key->role <= last)
      order = compare_values(key, (const char *)a + key->offset, (const char *)b + key->offset);
    if (order != 0 && difference) {
      difference->key = key->path;
      print_start(key, a, difference->a);
      print_start(key, b, difference->b);
    }
  }
  return order;
}

petra_status petra_config_compare_text(const char *path, const char *text, const petra_config *b,
                                       petra_config_role last, int *order, petra_config_difference *difference) {
  petra_config *a;
  PETRA_TRY(petra_config_load_text(&(petra_config_text){path, text, strlen(text)}, NULL, 0, &a));
  *order = petra_config_compare(a, b, last, difference);
  petra_config_destroy(a);
  return PETRA_OK;
}
