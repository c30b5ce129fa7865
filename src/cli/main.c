#include <stdio.h>

int main(void) {
  puts("petra");
  return 0;
}
