#include "base/status.h"

const char *petra_status_name(petra_status status) {
  switch (status) {
#define PETRA_STATUS_NAME(name, code, meaning)                                                                         \
  case PETRA_##name:                                                                                                   \
    return #name;
    PETRA_STATUS_LIST(PETRA_STATUS_NAME)
#undef PETRA_STATUS_NAME
  }
  return "?";
}

int petra_status_exit_code(petra_status status) {
  switch (status) {
#define PETRA_STATUS_CODE(name, code, meaning)                                                                         \
  case PETRA_##name:                                                                                                   \
    return code;
    PETRA_STATUS_LIST(PETRA_STATUS_CODE)
#undef PETRA_STATUS_CODE
  }
  return 1;
}
