/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands print: JSON, tables, progress. */
#include "base/json.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/utf8.h"
#include "harness.h"

#include <jansson.h>
#include <math.h>

START_TEST(json_reals_and_strings) {
  char *text = NULL;
  size_t size = 0;
  json_t *object = json_object();
  petra_json_set(&object, "nan", petra_json_real(NAN));
  petra_json_set(&object, "inf", petra_json_real(-INFINITY));
  petra_json_set(&object, "third", petra_json_real(1.0 / 3));
  petra_json_set(&object, "name", petra_json_string("a\xff\xc3\xa4\xe2"));
  FILE *stream = open_memstream(&text, &size);
  ck_assert_int_eq(petra_json_print(object, stream), PETRA_OK);
  fclose(stream);
  ck_assert_str_eq(text, "{\n  \"nan\": null,\n  \"inf\": null,\n  \"third\": 0.33333333333333331,\n"
                         "  \"name\": \"a\\\\xff\xc3\xa4\\\\xe2\"\n}\n");
  free(text);
  petra_json_set(&object, "lost", NULL);
  ck_assert_ptr_null(object);
  petra_json_set(&object, "lost", json_integer(1));
  json_t *list = json_array();
  petra_json_append(&list, json_integer(1));
  ck_assert_uint_eq(json_array_size(list), 1);
  petra_json_append(&list, json_pack("{s:o, s:o}", "kept", json_true(), "lost", NULL));
  ck_assert_ptr_null(list);
  petra_json_append(&list, json_integer(2));
  ck_assert_int_eq(petra_json_print(NULL, stdout), PETRA_NO_MEMORY);
}
END_TEST

static petra_table *four_columns(void) {
  petra_table *table = NULL;
  ck_assert_int_eq(petra_table_create(&table), PETRA_OK);
  petra_table_add_column(table, "stage", PETRA_TABLE_RIGHT);
  petra_table_add_column(table, "name", PETRA_TABLE_LEFT);
  petra_table_add_column(table, "bytes", PETRA_TABLE_RIGHT);
  petra_table_add_column(table, "note", PETRA_TABLE_LEFT);
  return table;
}

START_TEST(table_aligns) {
  char *text = NULL;
  size_t size = 0;
  petra_table *table = four_columns();
  static const char *const names[] = {"\xc3\xa4\xe6\x97\xa5 e\xcc\x81",
                                      "a longer name"}; /* two letters, one of them wide, and an accented one */
  for (int i = 0; i < 2; i++) {
    petra_table_cell(table, "%d", i + 1);
    petra_table_cell(table, "%s", names[i]);
    petra_table_cell(table, "%d", i ? 1234567 : 8);
    petra_table_cell(table, "%s", i ? "" : "x");
  }
  FILE *stream = open_memstream(&text, &size);
  ck_assert_int_eq(petra_table_print(table, stream), PETRA_OK);
  fclose(stream);
  ck_assert_str_eq(text, "stage  name             bytes  note\n"
                         "    1  \xc3\xa4\xe6\x97\xa5 e\xcc\x81                8  x\n"
                         "    2  a longer name  1234567\n");
  free(text);
  table = four_columns();
  petra_table_cell(table, "alone");
  harness_clear();
  ck_assert_int_eq(petra_table_print(table, stdout), PETRA_INTERNAL);
  ck_assert_logged("4 columns has 1 cells");
}
END_TEST

static bool fail_nth(void *context, size_t bytes) {
  (void)bytes;
  return (*(int *)context)-- == 0;
}

/* 130 cells: the array of cells is made and grows four times. */
static petra_status build_table(FILE *out) {
  petra_table *table = NULL;
  PETRA_TRY(petra_table_create(&table));
  petra_table_add_column(table, "n", PETRA_TABLE_RIGHT);
  for (int i = 0; i < 130; i++)
    petra_table_cell(table, "%d", i);
  return petra_table_print(table, out);
}

START_TEST(table_survives_failed_allocations) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  petra_status status = PETRA_NO_MEMORY;
  int n = 0;
  for (; n < 1000; n++) {
    int countdown = n;
    petra_mem_set_hook(fail_nth, &countdown);
    status = build_table(stream);
    petra_mem_set_hook(NULL, NULL);
    if (status == PETRA_OK)
      break;
    ck_assert_int_eq(status, PETRA_NO_MEMORY);
  }
  fclose(stream);
  ck_assert_int_eq(n, 1 + 1 + 5 + 130 + 1); /* the table, its growth, the cells, the widths */
  ck_assert_uint_eq(strlen(text), 131 * 4);
  free(text);
}
END_TEST

static int64_t test_clock(void *context) {
  return *(int64_t *)context;
}

enum { MILLISECOND = 1000000 };

START_TEST(progress_rewrites_a_line_on_a_terminal) {
  char *text = NULL;
  size_t size = 0;
  int64_t now_ns = 0;
  petra_progress progress;
  FILE *stream = open_memstream(&text, &size);
  petra_progress_init(&progress, stream, PETRA_PROGRESS_TERMINAL);
  progress.clock = test_clock;
  progress.clock_context = &now_ns;
  petra_progress_update(&progress, 0, 4, "loss 2");
  now_ns = 99 * MILLISECOND;
  petra_progress_update(&progress, 1, 4, "too soon");
  now_ns = 100 * MILLISECOND;
  petra_progress_update(&progress, 2, 4, "loss\n1");
  petra_progress_hide(&progress);
  petra_progress_hide(&progress); /* nothing to hide any more */
  petra_progress_update(&progress, 3, 4, "again");
  petra_progress_finish(&progress);
  fclose(stream);
  ck_assert_str_eq(text, "\r0/4   0% loss 2\033[K"
                         "\r2/4  50% loss\\x0a1, 0:00:00 left\033[K"
                         "\r\033[K"
                         "\r3/4  75% again, 0:00:00 left\033[K"
                         "\r\033[K");
  free(text);
}
END_TEST

START_TEST(progress_never_wraps) {
  char *text = NULL, longer[300];
  size_t size = 0;
  int64_t now_ns = 0;
  petra_progress progress;
  for (int i = 0; i < 299; i += 2)
    memcpy(longer + i, "\xc3\xa4", 2);
  longer[298] = 0;
  FILE *stream = open_memstream(&text, &size);
  petra_progress_init(&progress, stream, PETRA_PROGRESS_TERMINAL);
  progress.clock = test_clock;
  progress.clock_context = &now_ns;
  petra_progress_update(&progress, 11, 0, longer);
  fflush(stream);
  /* 80 columns: at most 79 bytes between \r and the 3 of \033[K, cut before a character's first byte */
  ck_assert_uint_eq(size, 1 + 79 + 3);
  ck_assert_int_eq((unsigned char)text[79], 0xa4);
  petra_progress_finish(&progress);
  fclose(stream);
  free(text);
}
END_TEST

START_TEST(progress_lines_are_rare) {
  char *text = NULL;
  size_t size = 0;
  int64_t now_ns = 0;
  petra_progress progress;
  FILE *stream = open_memstream(&text, &size);
  petra_progress_init(&progress, stream, PETRA_PROGRESS_LINES);
  progress.clock = test_clock;
  progress.clock_context = &now_ns;
  for (int i = 0; i <= 24; i++) { /* one a second */
    now_ns = i * INT64_C(1000000000);
    petra_progress_update(&progress, 100 + i, 7324, "x");
  }
  petra_progress_finish(&progress);
  petra_progress_finish(&progress); /* the last line is there already */
  fclose(stream);
  ck_assert_str_eq(text, "100/7324   1% x\n"
                         "110/7324   1% x, 2:00:14 left\n"
                         "120/7324   1% x, 2:00:04 left\n"
                         "124/7324   1% x, 2:00:00 left\n");
  free(text);
}
END_TEST

START_TEST(progress_auto_and_quiet) {
  FILE *file = tmpfile();
  ck_assert_ptr_nonnull(file);
  petra_progress progress;
  petra_progress_init(&progress, file, PETRA_PROGRESS_AUTO);
  ck_assert_int_eq(progress.style, PETRA_PROGRESS_LINES);
  petra_progress_init(&progress, file, PETRA_PROGRESS_QUIET);
  petra_progress_update(&progress, 1, 2, "x");
  petra_progress_finish(&progress);
  ck_assert_int_eq(ftell(file), 0);
  petra_progress_init(&progress, file, PETRA_PROGRESS_AUTO);
  petra_progress_update(&progress, 1, 0, "x"); /* with the system's clock */
  petra_progress_finish(&progress);
  ck_assert_int_eq(ftell(file), 4);
  fclose(file);
}
END_TEST

START_TEST(utf8_is_strict_and_shown_safely) {
  uint32_t c = 0;
  ck_assert_int_eq(petra_utf8_decode("\xf4\x8f\xbf\xbf", 4, &c), 4);
  ck_assert_uint_eq(c, 0x10ffff);
  static const char *const wrong[] = {"\x80",
                                      "\xc0\x80",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xe2\x82",
                                      "\xff"};
  for (int i = 0; i < HARNESS_COUNT(wrong); i++)
    ck_assert_int_eq(petra_utf8_decode(wrong[i], strlen(wrong[i]), &c), 0);
  char shown[12], whole[64];
  ck_assert_str_eq(petra_utf8_show(whole, sizeof whole, "a\033[\xff\n\xc2\x85.", 8), "a\\x1b[\\xff\\x0a\\xc2\\x85.");
  /* DEL, C1, a mark that turns the direction; and text that stays */
  ck_assert_str_eq(petra_utf8_show(whole, sizeof whole, "\x7f\xc2\x9b\xe2\x80\xae", 6),
                   "\\x7f\\xc2\\x9b\\xe2\\x80\\xae");
  ck_assert_str_eq(petra_utf8_show(whole, sizeof whole, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9),
                   "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  ck_assert_str_eq(petra_utf8_show(shown, sizeof shown, "1234567\033", 8), "1234567\\x1b");
  ck_assert_str_eq(petra_utf8_show(shown, sizeof shown, "12345678\033", 9), "12345678...");
  ck_assert_str_eq(petra_utf8_show(shown, sizeof shown, "12345678901", 11), "12345678901");
  ck_assert_str_eq(petra_utf8_show(shown, sizeof shown, "123456789012", 12), "12345678...");
  ck_assert_str_eq(petra_utf8_show(shown, sizeof shown, "1234567\xc3\xa4\xc3\xa4\xc3\xa4", 13), "1234567...");
  ck_assert_str_eq(petra_utf8_show(shown, sizeof shown, "", 0), "");
  ck_assert_int_eq(petra_utf8_columns(""), 0);
  ck_assert_int_eq(petra_utf8_columns("a\xc3\xa4\xe2\x82\xac"), 3);
  ck_assert_int_eq(petra_utf8_columns("\xe6\x97\xa5\xef\xbc\x81\xf0\x9f\x98\x80"),
                   6); /* an ideograph, a full-width mark, a picture */
  ck_assert_int_eq(petra_utf8_columns("e\xcc\x81"), 1);
}
END_TEST

static petra_status print_text(const void *fails, FILE *out) {
  fprintf(out, "one\ntwo");
  return *(const bool *)fails ? petra_fail(PETRA_DATA, "not printed") : PETRA_OK;
}

static petra_status print_nothing(const void *context, FILE *out) {
  (void)context;
  (void)out;
  return PETRA_OK;
}

static petra_status print_much(const void *context, FILE *out) {
  (void)context;
  for (int i = 0; i < 10000; i++)
    fputs("more ", out);
  return PETRA_OK;
}

static bool fails_above(void *limit, size_t bytes) {
  return bytes > *(size_t *)limit;
}

START_TEST(text_is_whole_or_refused) {
  static const bool prints = false, fails = true;
  char *text = NULL;
  size_t size = 0, limit = 0;
  ck_assert_int_eq(petra_text_print(print_text, &fails, "a test", &text, &size), PETRA_DATA);
  ck_assert_logged("not printed");
  ck_assert_ptr_null(text);
  petra_mem_set_hook(fails_above, &limit); /* the last bytes do not fit, and then some in the middle */
  ck_assert_int_eq(petra_text_print(print_text, &prints, "a test", &text, &size), PETRA_NO_MEMORY);
  ck_assert_logged("out of memory for a test");
  limit = 20000;
  ck_assert_refused(NO_MEMORY, "out of memory for a test", petra_text_print(print_much, NULL, "a test", &text, &size));
  ck_assert_ptr_null(text);
  limit = 200000;
  ck_assert_int_eq(petra_text_print(print_much, NULL, "a test", &text, &size), PETRA_OK);
  petra_mem_set_hook(NULL, NULL);
  ck_assert_int_eq(size, 50000);
  ck_assert_int_eq(strlen(text), 50000);
  petra_free(text);
  ck_assert_int_eq(petra_text_print(print_nothing, NULL, "a test", &text, &size), PETRA_OK);
  ck_assert_str_eq(text, "");
  ck_assert_int_eq(size, 0);
  petra_free(text);
  ck_assert_int_eq(petra_text_print(print_text, &prints, "a test", &text, &size), PETRA_OK);
  ck_assert_str_eq(text, "one\ntwo");
  ck_assert_int_eq(size, 7);
  petra_free(text);
}
END_TEST

int main(void) {
  const TTest *tests[] = {json_reals_and_strings,
                          text_is_whole_or_refused,
                          table_aligns,
                          table_survives_failed_allocations,
                          progress_rewrites_a_line_on_a_terminal,
                          progress_never_wraps,
                          progress_lines_are_rare,
                          progress_auto_and_quiet,
                          utf8_is_strict_and_shown_safely};
  return harness_run("output", tests, HARNESS_COUNT(tests));
}
