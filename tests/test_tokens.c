/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of tokens: which windows an epoch has, in which order, and what becomes of them in a batch; files of all forms, and those
 * that are wrong; the generated set against its known entropy. */
#include "backend/backend.h"
#include "backend/registry.h"
#include "base/mem.h"
#include "data/loader.h"
#include "data/data_sets.h"
#include "exec/network.h"
#include "harness.h"
#include "io/data_file.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENS = 1000, CONTEXT = 7, BATCH = 3, SEED = 5, SETS_MAX = 16 };
/* Of a text: the first nine tenths of its tokens, and the last. */
enum { TRAIN = 900, EVAL = 100, TRAIN_WINDOWS = (TRAIN - CONTEXT) / CONTEXT, EVAL_WINDOWS = (EVAL - 1) / CONTEXT };
enum { HEADER = 1024 };

#define TEXT "data.set=text", "data.path=test_tokens.bin", "model.context=7"
#define BIN "data.set=tokens", "data.path=test_tokens.bin", "model.context=7"

static const char name[] = "test_tokens.bin", other_name[] = "test_tokens-other.bin", folder[] = "test_tokens.d",
                  train_name[] = "test_tokens.d/train.bin", val_name[] = "test_tokens.d/val.bin";

static void remove_files(void) {
  const char *const files[] = {name, other_name, train_name, val_name, folder};
  for (int i = 0; i < HARNESS_COUNT(files); i++)
    remove(files[i]);
}

static int32_t token(int64_t i) {
  return (int32_t)(i * 37 % 251);
}

static void write_bytes(const char *path, const uint8_t *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
  ck_assert_int_eq(fclose(file), 0);
}

static void write_text(const char *path, int64_t count) {
  uint8_t bytes[TOKENS];
  for (int64_t i = 0; i < count; i++)
    bytes[i] = (uint8_t)token(i);
  write_bytes(path, bytes, (size_t)count);
}

static void put_word(uint8_t *at, uint32_t word) {
  for (int i = 0; i < 4; i++)
    at[i] = (uint8_t)(word >> 8 * i);
}

/* `count` tokens + `add` of 16 bits, behind a header where `magic` is not 0. */
static void write_bin(const char *path, int64_t count, int32_t add, uint32_t magic, uint32_t version, uint32_t said) {
  uint8_t bytes[HEADER + 2 * TOKENS] = {0};
  const size_t begin = magic ? HEADER : 0;
  if (magic) {
    put_word(bytes, magic);
    put_word(bytes + 4, version);
    put_word(bytes + 8, said);
  }
  for (int64_t i = 0; i < count; i++) {
    bytes[begin + 2 * (size_t)i] = (uint8_t)(token(i) + add);
    bytes[begin + 2 * (size_t)i + 1] = (uint8_t)((token(i) + add) >> 8);
  }
  write_bytes(path, bytes, begin + 2 * (size_t)count);
}

static petra_status load(const char *const *sets, petra_config **out) {
  int count = 0;
  while (sets[count])
    count++;
  return petra_config_load(NULL, sets, count, out);
}

static petra_status try_open(const char *const *sets, petra_split split, petra_dataset **out) {
  petra_config *config;
  ck_assert_int_eq(load(sets, &config), PETRA_OK);
  petra_status status = petra_dataset_open(config, split, out);
  petra_config_destroy(config);
  return status;
}

static petra_dataset *open_set(const char *const *sets, petra_split split) {
  petra_dataset *set = NULL;
  ck_assert_msg(try_open(sets, split, &set) == PETRA_OK, "%s", harness_line);
  return set;
}

/* The split is `count` tokens from token(first) + add on. */
static void assert_tokens(const petra_dataset *set, int64_t first, int64_t count, int32_t add) {
  int32_t tokens[TOKENS];
  ck_assert_int_eq(set->tokens, count);
  ck_assert_int_eq(set->ops->read_tokens(set, 0, count, tokens), PETRA_OK);
  for (int64_t i = 0; i < count; i++)
    ck_assert_int_eq(tokens[i], token(first + i) + add);
  ck_assert_int_eq(set->ops->read_tokens(set, count - 1, 1, tokens), PETRA_OK);
  ck_assert_int_eq(tokens[0], token(first + count - 1) + add);
}

/* --- windows --- */

START_TEST(windows_are_counted) {
  for (int64_t tokens = 0; tokens < 40; tokens++)
    for (int32_t context = 1; context < 8; context++) {
      int64_t fit = 0;
      while ((fit + 1) * context + 1 <= tokens)
        fit++;
      ck_assert_int_eq(petra_windows_count(tokens, context, PETRA_SPLIT_EVAL), fit);
      fit = 0;
      while (context - 1 + (fit + 1) * context + 1 <= tokens) /* from the largest offset */
        fit++;
      ck_assert_int_eq(petra_windows_count(tokens, context, PETRA_SPLIT_TRAIN), fit);
    }
}
END_TEST

START_TEST(offsets_are_drawn_by_epoch) {
  int seen[CONTEXT] = {0};
  for (uint32_t epoch = 0; epoch < 200; epoch++) {
    const int32_t offset = petra_windows_offset(SEED, epoch, CONTEXT);
    ck_assert(offset >= 0 && offset < CONTEXT);
    ck_assert_int_eq(offset, petra_windows_offset(SEED, epoch, CONTEXT));
    ck_assert_int_eq(petra_windows_offset(SEED, epoch, 1), 0);
    seen[offset]++;
  }
  for (int i = 0; i < CONTEXT; i++)
    ck_assert_int_gt(seen[i], 0);
}
END_TEST

/* --- batches --- */

static petra_loader_options training(int threads) {
  return (petra_loader_options){
      .batch = BATCH, .shuffle = true, .drop_last = true, .threads = threads, .seed = SEED, .end = INT64_MAX};
}

/* A window of the text that begins with token number `first`. */
static void assert_window(const petra_batch *batch, int32_t sample, int64_t first) {
  for (int32_t t = 0; t < CONTEXT; t++) {
    if (batch->values)
      ck_assert(batch->values[sample * CONTEXT + t] == token(first + t));
    ck_assert_int_eq(batch->labels[sample * CONTEXT + t], token(first + t + 1));
  }
}

/* Microbatch `number` as data/token_sets.h and data/loader.h describe it, of replica `part` of `parts`. */
static void assert_training(const petra_batch *batch, int64_t number, int32_t parts, int32_t part) {
  const int64_t batches = TRAIN_WINDOWS / (BATCH * parts);
  const uint32_t epoch = (uint32_t)(number / batches);
  uint32_t order[TRAIN_WINDOWS];
  petra_rng rng;
  petra_rng_init(&rng, SEED, PETRA_RNG_SHUFFLE, epoch, 0);
  petra_rng_permutation(&rng, order, TRAIN_WINDOWS);
  petra_rng_init(&rng, SEED, PETRA_RNG_WINDOW, epoch, 0);
  const int64_t offset = petra_rng_below(&rng, CONTEXT);
  ck_assert_int_eq(batch->microbatch, number);
  for (int32_t i = 0; i < BATCH; i++)
    assert_window(batch, i, offset + CONTEXT * (int64_t)order[(number % batches * parts + part) * BATCH + i]);
}

START_TEST(batches_are_windows_in_order) {
  static const char *const sets[] = {TEXT, NULL};
  static const int threads[] = {1, 4, 1, 2, 2};
  write_text(name, TOKENS);
  petra_dataset *set = open_set(sets, PETRA_SPLIT_TRAIN);
  ck_assert(set->samples == PETRA_SAMPLE_TOKENS && set->count == TRAIN_WINDOWS && set->classes == 256);
  for (int i = 0; i < HARNESS_COUNT(threads); i++) {
    petra_loader_options options = training(threads[i]);
    petra_loader *loader;
    options.bytes = i == 1; /* changes nothing of tokens */
    options.labels = i == 2;
    options.first = i == 3 ? 100 : 0;
    options.parts = i == 4 ? 2 : 0;
    options.part = i == 4 ? 1 : 0;
    ck_assert_int_eq(petra_loader_create(set, &options, &loader), PETRA_OK);
    ck_assert_int_eq(petra_loader_labels(loader), CONTEXT);
    for (int64_t m = options.first; m < options.first + 130; m++) { /* more than three epochs */
      petra_batch *batch;
      ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
      ck_assert(batch->samples == PETRA_SAMPLE_TOKENS && !batch->pixels && (batch->values == NULL) == options.labels);
      ck_assert(batch->count == BATCH && batch->label_count == BATCH * CONTEXT);
      ck_assert(batch->shape[0] == BATCH && batch->shape[1] == CONTEXT && batch->shape[2] == 1 && batch->shape[3] == 1);
      assert_training(batch, m, i == 4 ? 2 : 1, options.part);
      petra_loader_give_back(loader, batch);
    }
    petra_loader_destroy(loader);
  }
  petra_dataset_destroy(set);
}
END_TEST

START_TEST(evaluation_has_each_token_once) {
  static const char *const sets[] = {TEXT, NULL};
  write_text(name, TOKENS);
  petra_dataset *set = open_set(sets, PETRA_SPLIT_EVAL);
  const petra_loader_options options = {.batch = 4, .threads = 2, .seed = SEED, .end = (EVAL_WINDOWS + 3) / 4};
  petra_loader *loader;
  int64_t window = 0;
  ck_assert_int_eq(set->count, EVAL_WINDOWS);
  ck_assert_int_eq(petra_loader_create(set, &options, &loader), PETRA_OK);
  for (int64_t m = 0; m < options.end; m++) {
    petra_batch *batch;
    ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
    for (int32_t i = 0; i < batch->count; i++, window++)
      assert_window(batch, i, TRAIN + CONTEXT * window);
    petra_loader_give_back(loader, batch);
  }
  ck_assert_int_eq(window, EVAL_WINDOWS);
  petra_loader_destroy(loader);
  petra_dataset_destroy(set);
}
END_TEST

/* A network gets them as a sequence. */
START_TEST(a_batch_becomes_a_sequence) {
  static const char *const sets[] = {TEXT, NULL};
  const petra_loader_options options = training(1);
  const petra_backend_options backends = {.kind = PETRA_BACKEND_REF, .precision = PETRA_PRECISION_FP32, .threads = 1};
  double values[BATCH * CONTEXT];
  petra_backend *backend;
  petra_loader *loader;
  petra_batch *batch;
  petra_tensor *tensor;
  write_text(name, TOKENS);
  petra_dataset *set = open_set(sets, PETRA_SPLIT_TRAIN);
  ck_assert_int_eq(petra_backend_create_with(&backends, &backend), PETRA_OK);
  ck_assert_int_eq(petra_loader_create(set, &options, &loader), PETRA_OK);
  ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
  ck_assert_int_eq(petra_batch_upload(backend, batch, NULL, PETRA_MEMORY_WORKSPACE, &tensor), PETRA_OK);
  ck_assert(tensor->kind == PETRA_TENSOR_SEQUENCE && memcmp(tensor->shape, batch->shape, sizeof batch->shape) == 0);
  ck_assert_int_eq(petra_op_download(backend, tensor, values, PETRA_HOST_F64), PETRA_OK);
  ck_assert_mem_eq(values, batch->values, sizeof values);
  petra_tensor_release(&tensor);
  petra_loader_give_back(loader, batch);
  petra_loader_destroy(loader);
  petra_backend_destroy(backend);
  petra_dataset_destroy(set);
}
END_TEST

/* --- splits --- */

/* data.limit and eval_limit are in windows; data.eval_share and eval_path part the tokens. */
START_TEST(splits_of_one_file_and_of_two) {
  static const struct {
    const char *sets[SETS_MAX];
    int64_t first[2], count[2], windows[2]; /* by split; count 0: none */
  } cases[] = {
      {{TEXT}, {0, TRAIN}, {TRAIN, EVAL}, {TRAIN_WINDOWS, EVAL_WINDOWS}},
      {{TEXT, "data.eval_share=0.5"}, {0, 500}, {500, 500}, {70, 71}},
      {{TEXT, "data.limit=4", "data.eval_limit=5"}, {0, TRAIN}, {35, 36}, {4, 5}},
      {{TEXT, "data.eval_path=test_tokens-other.bin"}, {0, 0}, {TOKENS, 50}, {141, 7}},
      {{TEXT, "data.eval_share=0"}, {0, 0}, {TOKENS, 0}, {141, 0}},
  };
  write_text(name, TOKENS);
  write_text(other_name, 50);
  for (int i = 0; i < HARNESS_COUNT(cases); i++)
    for (int split = 0; split < 2; split++) {
      petra_config *config;
      bool there;
      ck_assert_int_eq(load(cases[i].sets, &config), PETRA_OK);
      ck_assert_int_eq(petra_dataset_has_eval(config, &there), PETRA_OK);
      petra_config_destroy(config);
      ck_assert_int_eq(there, cases[i].count[1] > 0);
      if (cases[i].count[split] == 0) {
        petra_dataset *set;
        ck_assert_int_eq(try_open(cases[i].sets, (petra_split)split, &set), PETRA_CONFIG);
        ck_assert_logged("data.eval_share=0: 0, so that there is no evaluation split; set run.eval_every: 0");
        continue;
      }
      petra_dataset *set = open_set(cases[i].sets, (petra_split)split);
      assert_tokens(set, cases[i].first[split], cases[i].count[split], 0);
      ck_assert_int_eq(set->count, cases[i].windows[split]);
      petra_dataset_destroy(set);
    }
}
END_TEST

START_TEST(files_of_16_bits) {
  static const char *const raw[] = {BIN, "data.vocabulary=700", NULL}, *const both[] = {"data.set=tokens",
                                                                                        "data.path=test_tokens.d",
                                                                                        "data.vocabulary=551",
                                                                                        "model.context=7", NULL};
  enum { ADD = 300 }; /* so that both bytes count */
  write_bin(name, TOKENS, ADD, 0, 0, 0);
  petra_dataset *set = open_set(raw, PETRA_SPLIT_TRAIN);
  ck_assert_int_eq(set->classes, 700);
  assert_tokens(set, 0, TRAIN, ADD);
  petra_dataset_destroy(set);
  set = open_set(raw, PETRA_SPLIT_EVAL);
  assert_tokens(set, TRAIN, EVAL, ADD);
  petra_dataset_destroy(set);
  write_bin(name, TOKENS, ADD, 20240520, 1, TOKENS);
  set = open_set(raw, PETRA_SPLIT_TRAIN);
  assert_tokens(set, 0, TRAIN, ADD);
  petra_dataset_destroy(set);
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  write_bin(train_name, TOKENS, ADD, 0, 0, 0);
  write_bin(val_name, 90, ADD, 20240520, 1, 90);
  set = open_set(both, PETRA_SPLIT_TRAIN);
  assert_tokens(set, 0, TOKENS, ADD);
  petra_dataset_destroy(set);
  set = open_set(both, PETRA_SPLIT_EVAL);
  assert_tokens(set, 0, 90, ADD);
  petra_dataset_destroy(set);
}
END_TEST

START_TEST(files_in_hdf5) {
  static const char *const sets[] = {BIN, NULL}, *const more[] = {BIN, "data.eval_path=x", NULL};
  const petra_data_file_about about = {.vocabulary = 600, .train = TOKENS, .eval = 70, .source = "a test"};
  int32_t tokens[TOKENS];
  petra_data_file *file;
  petra_dataset *set;
  for (int64_t i = 0; i < TOKENS; i++)
    tokens[i] = token(i) + 300;
  ck_assert_int_eq(petra_data_file_create(name, &about, &file), PETRA_OK);
  ck_assert_int_eq(petra_data_file_put_tokens(file, PETRA_DATA_FILE_TRAIN, 0, 600, tokens), PETRA_OK);
  ck_assert_int_eq(petra_data_file_put_tokens(file, PETRA_DATA_FILE_TRAIN, 600, TOKENS - 600, tokens + 600), PETRA_OK);
  ck_assert_int_eq(petra_data_file_put_tokens(file, PETRA_DATA_FILE_EVAL, 0, 70, tokens), PETRA_OK);
  ck_assert_int_eq(petra_data_file_close(file), PETRA_OK);
  set = open_set(sets, PETRA_SPLIT_TRAIN);
  ck_assert_int_eq(set->classes, 600);
  assert_tokens(set, 0, TOKENS, 300);
  petra_dataset_destroy(set);
  set = open_set(sets, PETRA_SPLIT_EVAL);
  assert_tokens(set, 0, 70, 300);
  petra_dataset_destroy(set);
  ck_assert_int_eq(try_open(more, PETRA_SPLIT_TRAIN, &set), PETRA_CONFIG);
  ck_assert_logged("data.eval_path=x: x, but data.path is an HDF5 file, which has its own evaluation split");
}
END_TEST

/* --- what is wrong --- */

typedef struct wrong {
  const char *sets[SETS_MAX];
  petra_status status;
  const char *line;
} wrong;

static void assert_wrong(const wrong *w) {
  petra_dataset *set = NULL;
  harness_clear();
  ck_assert_msg(try_open(w->sets, PETRA_SPLIT_TRAIN, &set) == w->status, "'%s' for '%s'", harness_line, w->line);
  ck_assert_logged(w->line);
  ck_assert_int_eq(harness_lines, 1);
}

START_TEST(configs_that_are_refused) {
  static const wrong cases[] = {
      {{TEXT, "data.augment=[flip]"},
       PETRA_CONFIG,
       "data.augment=[flip]: changes images, but data.set: text has tokens; expected []"},
      {{TEXT, "data.vocabulary=255"}, PETRA_CONFIG, "test_tokens.bin has 256 different tokens; expected that number"},
      {{"data.set=grammar", "data.vocabulary=65"}, PETRA_CONFIG, "data.set: grammar has 64 different tokens"},
      {{BIN}, PETRA_CONFIG, "data.vocabulary: 0, but test_tokens.bin does not state how many different"},
      {{TEXT, "model.context=451"},
       PETRA_DATA,
       "test_tokens.bin: 900 training tokens are too few for a window of model.context: 451, expected at least 902"},
      {{TEXT, "data.path="}, PETRA_CONFIG, "data.path=: is empty, expected a file of text"},
      {{TEXT, "data.path=."}, PETRA_IO, ".: is a folder, expected a file of text (data.path)"},
      {{TEXT, "data.path=nothing"}, PETRA_IO, "nothing: No such file or directory, expected a file of text"},
      {{BIN, "data.path=nothing"}, PETRA_IO, "nothing: No such file or directory, expected a file of tokens"},
      {{BIN, "data.path=/"}, PETRA_IO, "/train.bin: No such file or directory, expected a file of tokens"},
  };
  write_text(name, TOKENS);
  for (int i = 0; i < HARNESS_COUNT(cases); i++)
    assert_wrong(&cases[i]);
}
END_TEST

START_TEST(files_that_are_refused) {
  static const wrong odd = {{BIN, "data.vocabulary=999"},
                            PETRA_DATA,
                            "test_tokens.bin: 999 bytes, an odd number; expected tokens of two bytes"},
                     empty = {{TEXT}, PETRA_DATA, "test_tokens.bin: the file is empty, expected a file of text"},
                     version = {{BIN, "data.vocabulary=999"},
                                PETRA_DATA,
                                "begins with 20240520, the header of llm.c, of version 2; expected 1"},
                     wide = {{BIN, "data.vocabulary=999"},
                             PETRA_DATA,
                             "begins with 20240801, the header of llm.c for tokens of 32 bits"},
                     count = {{BIN, "data.vocabulary=999"},
                              PETRA_DATA,
                              "its header says 999 tokens, so that the file should have 3022 bytes, but it has 3024"};
  write_text(name, TOKENS - 1);
  assert_wrong(&odd);
  write_text(name, 0);
  assert_wrong(&empty);
  write_bin(name, TOKENS, 0, 20240520, 2, TOKENS);
  assert_wrong(&version);
  write_bin(name, TOKENS, 0, 20240801, 7, TOKENS);
  assert_wrong(&wide);
  write_bin(name, TOKENS, 0, 20240520, 1, TOKENS - 1);
  assert_wrong(&count);
}
END_TEST

/* A token out of range is told with its place in the file, also in the evaluation part. */
START_TEST(tokens_out_of_range) {
  static const char *const sets[] = {BIN, "data.vocabulary=250", NULL};
  int32_t tokens[EVAL];
  int64_t bad = 0;
  write_bin(name, TOKENS, 0, 0, 0, 0);
  while (token(TRAIN + bad) < 250)
    bad++;
  ck_assert_int_lt(bad, EVAL);
  petra_dataset *set = open_set(sets, PETRA_SPLIT_EVAL);
  char line[128];
  snprintf(line, sizeof line, "test_tokens.bin: token %lld (from 0) is 250, expected 0 to 249",
           (long long)(TRAIN + bad));
  ck_assert_int_eq(set->ops->read_tokens(set, 0, EVAL, tokens), PETRA_DATA);
  ck_assert_logged(line);
  petra_dataset_destroy(set);
}
END_TEST

/* --- the generated set --- */

static int32_t *grammar_tokens(petra_dataset **set) {
  static const char *const sets[] = {"data.set=grammar", NULL};
  int32_t *tokens;
  *set = open_set(sets, PETRA_SPLIT_EVAL);
  ck_assert_int_eq((*set)->tokens, PETRA_GRAMMAR_EVAL_TOKENS);
  ck_assert_int_eq(petra_allocate(&tokens, PETRA_GRAMMAR_EVAL_TOKENS, sizeof *tokens), PETRA_OK);
  ck_assert_int_eq((*set)->ops->read_tokens(*set, 0, PETRA_GRAMMAR_EVAL_TOKENS, tokens), PETRA_OK);
  return tokens;
}

static const int distances[] = {1, 8, 64};

static int letter(int32_t of, int i) {
  return of >> 2 * i & 3;
}

/* Each letter follows its own earlier self by the law of data/token_sets.h: how often it is 0 .. 3 more. Tolerance: 5 standard deviations
 * of a share of 131,000, at most 5 sqrt(0.085 / 131000) = 0.004. */
START_TEST(grammar_obeys_its_law) {
  petra_dataset *set;
  int32_t *tokens = grammar_tokens(&set);
  for (int i = 0; i < HARNESS_COUNT(distances); i++) {
    double count[4] = {0}, value[4] = {0};
    for (int64_t t = 64; t < set->tokens; t++) {
      ck_assert(tokens[t] >= 0 && tokens[t] < PETRA_GRAMMAR_VOCABULARY);
      count[(letter(tokens[t], i) - letter(tokens[t - distances[i]], i) + 4) % 4]++;
      value[letter(tokens[t], i)]++;
    }
    for (int more = 0; more < 4; more++) {
      ck_assert_double_eq_tol(count[more] / (double)(set->tokens - 64), more == 1 ? 29 / 32.0 : 1 / 32.0, 0.004);
      ck_assert_double_eq_tol(value[more] / (double)(set->tokens - 64), 0.25, 0.02); /* they come in runs of a cycle */
    }
  }
  petra_free(tokens);
  petra_dataset_destroy(set);
}
END_TEST

/* The loss of who knows the law and sees a window, over all windows of the set. */
static double measured_loss(const int32_t *tokens, int64_t count, int64_t context) {
  double sum = 0;
  int64_t labels = 0;
  for (int64_t first = 0; first + context < count; first += context)
    for (int64_t t = 1; t <= context; t++, labels++)
      for (int i = 0; i < HARNESS_COUNT(distances); i++) {
        const int32_t *at = tokens + first + t;
        const bool follows = t >= distances[i] && letter(*at, i) == (letter(at[-distances[i]], i) + 1) % 4;
        sum -= log(t < distances[i] ? 0.25 : follows ? 29 / 32.0 : 1 / 32.0);
      }
  return sum / (double)labels;
}

/* The mean of the loss of a letter has at most the standard deviation 0.98 / sqrt(131000) = 0.0027, of three 0.0047: five of these. */
START_TEST(grammar_has_the_entropy_that_it_says) {
  static const int64_t contexts[] = {1, 7, 8, 16, 64, 128, 1000};
  petra_dataset *set;
  int32_t *tokens = grammar_tokens(&set);
  double before = INFINITY;
  for (int i = 0; i < HARNESS_COUNT(contexts); i++) {
    const double best = petra_grammar_best_loss(contexts[i]);
    ck_assert_double_eq_tol(measured_loss(tokens, set->tokens, contexts[i]), best, 0.024);
    ck_assert(best < before - (contexts[i] == 7 ? -1e-12 : 0.05)); /* of 1 to 7 tokens there is one letter to be seen */
    before = best;
  }
  petra_free(tokens);
  petra_dataset_destroy(set);
}
END_TEST

/* The default of data.augment is that of the kind of samples, whichever layer of the config chooses it. */
START_TEST(augmentation_by_default) {
  static const struct {
    const char *file, *sets[2];
    unsigned expected;
  } cases[] = {{"data: {set: text}", {NULL}, 0},
               {"data: {set: text}", {"data.set=grammar"}, 0},
               {"data: {set: text}", {"data.set=shapes"}, PETRA_AUGMENT_CROP | PETRA_AUGMENT_FLIP},
               {"data: {set: text, augment: [flip]}", {NULL}, PETRA_AUGMENT_FLIP},
               {"data: {augment: [flip]}", {"data.set=text"}, 0},
               {"data: {augment: []}", {"data.set=shapes"}, 0}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    petra_config *config;
    write_bytes(name, (const uint8_t *)cases[i].file, strlen(cases[i].file));
    ck_assert_int_eq(petra_config_load(name, cases[i].sets, cases[i].sets[0] != NULL, &config), PETRA_OK);
    ck_assert_msg(config->data.augment == cases[i].expected, "case %d: %u", i, config->data.augment);
    petra_config_destroy(config);
  }
}
END_TEST

START_TEST(shapes_of_sets) {
  static const struct {
    const char *sets[SETS_MAX];
    int32_t classes;
    double best;
  } cases[] = {
      {{"data.set=text", "data.path=nowhere"}, 256, 0}, /* nothing is read */
      {{"data.set=grammar"}, 64, 1.7740},
      {{BIN, "data.vocabulary=50257", "model.context=128"}, 50257, 0},
      {{BIN, "data.vocabulary=300", "data.path=nowhere", "model.context=128"}, 300, 0}, /* no file: the key alone */
      {{BIN, "data.vocabulary=300", "data.path=/", "model.context=128"}, 300, 0}};      /* a folder without train.bin */
  write_bin(name, TOKENS, 0, 0, 0, 0);
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    petra_config *config;
    petra_dataset_shape shape;
    ck_assert_int_eq(load(cases[i].sets, &config), PETRA_OK);
    ck_assert_uint_eq(config->data.augment, 0); /* none for tokens, though the default of others is another */
    ck_assert_int_eq(petra_dataset_shape_of(config, &shape), PETRA_OK);
    ck_assert(shape.samples == PETRA_SAMPLE_TOKENS && shape.classes == cases[i].classes && shape.context == 128);
    ck_assert_double_eq_tol(shape.best_loss, cases[i].best, 5e-5);
    petra_config_destroy(config);
  }
  const char *const missing[][SETS_MAX] = {{BIN, "data.vocabulary=0", "data.path=nowhere"},
                                           {BIN, "data.vocabulary=0", "data.path=/"}};
  for (int i = 0; i < HARNESS_COUNT(missing); i++) {
    petra_config *config;
    petra_dataset_shape shape;
    ck_assert_int_eq(load(missing[i], &config), PETRA_OK);
    ck_assert_int_eq(petra_dataset_shape_of(config, &shape), PETRA_IO);
    ck_assert_logged("needs no file if data.vocabulary is set");
    petra_config_destroy(config);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {windows_are_counted,
                                offsets_are_drawn_by_epoch,
                                batches_are_windows_in_order,
                                evaluation_has_each_token_once,
                                a_batch_becomes_a_sequence,
                                splits_of_one_file_and_of_two,
                                files_of_16_bits,
                                files_in_hdf5,
                                configs_that_are_refused,
                                files_that_are_refused,
                                tokens_out_of_range,
                                grammar_obeys_its_law,
                                grammar_has_the_entropy_that_it_says,
                                augmentation_by_default,
                                shapes_of_sets};
  const int code = harness_run("tokens", tests, HARNESS_COUNT(tests));
  remove_files();
  return code;
}
