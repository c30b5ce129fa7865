/* SPDX-License-Identifier: Apache-2.0 */
/* The generated records of the golden runs are the bytes that the reference trained on. */
#include "golden_data.h"
#include "harness.h"

#include <unistd.h>

START_TEST(records_are_those_of_the_reference) {
  char path[] = "golden_data_XXXXXX";
  int descriptor = mkstemp(path);
  ck_assert_int_ge(descriptor, 0);
  close(descriptor);
  uint64_t hash = 0;
  ck_assert_int_eq(golden_data_write(path, GOLDEN_DATA_RECORDS, &hash), PETRA_OK);
  ck_assert_msg(hash == GOLDEN_DATA_FNV1A, "FNV-1a 0x%016llx", (unsigned long long)hash);
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
  ck_assert_int_eq(ftell(file), (long)GOLDEN_DATA_RECORDS * GOLDEN_DATA_RECORD_BYTES);
  /* What is in the file is what was hashed: its last record, made again. */
  uint8_t found[GOLDEN_DATA_RECORD_BYTES], expected[GOLDEN_DATA_RECORD_BYTES];
  ck_assert_int_eq(fseek(file, -(long)sizeof found, SEEK_END), 0);
  ck_assert_uint_eq(fread(found, 1, sizeof found, file), sizeof found);
  fclose(file);
  unlink(path);
  golden_data_record(GOLDEN_DATA_RECORDS - 1, expected);
  ck_assert_int_eq(memcmp(found, expected, sizeof found), 0);
}
END_TEST

START_TEST(every_class_occurs) {
  int seen[10] = {0};
  uint8_t record[GOLDEN_DATA_RECORD_BYTES];
  for (int64_t i = 0; i < GOLDEN_DATA_RECORDS; i++) {
    golden_data_record(i, record);
    ck_assert_uint_lt(record[0], 10);
    seen[record[0]]++;
  }
  /* 96 are expected of each; half of that is five standard deviations away. */
  for (int c = 0; c < 10; c++)
    ck_assert_int_gt(seen[c], 48);
}
END_TEST

START_TEST(a_file_that_cannot_be_created_is_named) {
  uint64_t hash = 7;
  harness_clear();
  ck_assert_int_eq(golden_data_write("no/such/folder/data.bin", 1, &hash), PETRA_IO);
  ck_assert_logged("no/such/folder/data.bin");
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_uint_eq(hash, 7);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {records_are_those_of_the_reference, every_class_occurs,
                                a_file_that_cannot_be_created_is_named};
  return harness_run("golden_data", tests, HARNESS_COUNT(tests));
}
