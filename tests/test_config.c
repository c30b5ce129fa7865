/* SPDX-License-Identifier: Apache-2.0 */
/* The config: what it reads, what it refuses and with which line, what it prints. */
#include "config/config_private.h"
#include "config/config.h"
#include "base/mem.h"
#include "config_cases.h"
#include "harness.h"
#include "nn/optim.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of the running process only, so that tests can run side by side. */
static const char *scratch_path(void) {
  static char path[64];
  snprintf(path, sizeof path, "test_config.%d.yaml", (int)getpid());
  return path;
}

static petra_status load_bytes(const char *text, size_t length, petra_config **out) {
  FILE *file = fopen(scratch_path(), "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(text, 1, length, file), length);
  fclose(file);
  harness_clear();
  petra_status status = petra_config_load(scratch_path(), NULL, 0, out);
  remove(scratch_path());
  return status;
}

static petra_status load_sets(const char *const *sets, int count, petra_config **out) {
  harness_clear();
  return petra_config_load(NULL, sets, count, out);
}

/* The printed form; free it with free. */
static char *printed(const petra_config *config) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  ck_assert_int_eq(petra_config_print(config, stream), PETRA_OK);
  fclose(stream);
  return text;
}

/* The config that a run writes says the same. */
static void expect_printed_alike(const petra_config *config) {
  petra_config *again = NULL;
  char *whole = printed(config);
  const petra_config_text text = {"b.yaml", whole, strlen(whole)};
  ck_assert_int_eq(petra_config_load_text(&text, NULL, 0, &again), PETRA_OK);
  petra_config_difference difference;
  ck_assert(!petra_config_differs(config, again, PETRA_ROLE_PLACE, &difference));
  free(whole);
  petra_config_destroy(again);
}

START_TEST(print_load_print_is_identical) {
  petra_config *config = NULL;
  ck_assert_int_eq(petra_config_load(NULL, NULL, 0, &config), PETRA_OK);
  char *text = printed(config);
  ck_assert_str_eq(text, defaults);
  free(text);
  petra_config_destroy(config);
  const char *const texts[] = {defaults, changed};
  for (int i = 0; i < HARNESS_COUNT(texts); i++) {
    config = NULL;
    ck_assert_msg(load_bytes(texts[i], strlen(texts[i]), &config) == PETRA_OK, "%s", harness_line);
    text = printed(config);
    ck_assert_str_eq(text, texts[i]);
    free(text);
    petra_config_destroy(config);
  }
}
END_TEST

START_TEST(values_reach_their_members) {
  petra_config *c = NULL;
  ck_assert_int_eq(load_bytes(changed, strlen(changed), &c), PETRA_OK);
  ck_assert_str_eq(c->run.name, "- yes: #1 'it' \"\\\" {[&*!|>%@`~");
  ck_assert_str_eq(c->run.output,
                   " tab\t line\n cr\r bell\x07 nel\xc2\x85 ls\xe2\x80\xa8 bom\xef\xbb\xbf \xf4\x8f\xbf\xbf"
                   " \xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\x8d ");
  ck_assert(c->run.seed == INT64_MAX && c->run.epochs == 1000000 && c->run.max_microbatches == 7);
  ck_assert(c->run.eval_every == 0 && c->run.drain == PETRA_DRAIN_FALSE && c->run.mode == PETRA_MODE_EXECUTE);
  ck_assert(c->data.set == PETRA_SET_SHAPES && c->data.batch == 1000000000 && !c->data.shuffle);
  ck_assert(c->data.augment == PETRA_AUGMENT_FLIP && c->data.limit == 3 && c->data.eval_limit == 4);
  ck_assert(c->data.recalibrate == 5);
  ck_assert(strcmp(c->data.eval_path, "~") == 0 && c->data.eval_share == 0 && c->data.vocabulary == 65536);
  ck_assert(c->model.context == 1000000000);
  ck_assert(c->data.workers == 256 && strcmp(c->data.path, "null") == 0);
  ck_assert(c->model.family == PETRA_FAMILY_RESNET && c->model.depth == 50 && c->model.width == 1);
  ck_assert(c->model.stem == PETRA_STEM_IMAGENET && c->model.classes == 100000 && c->model.new_head &&
            c->model.zero_init_residual && c->model.downsample == PETRA_DOWNSAMPLE_INVERTIBLE);
  ck_assert(c->model.shape == PETRA_SHAPE_CONSTANT && c->model.bottleneck == PETRA_BOTTLENECK_VARIANT);
  ck_assert(c->stages.partition == PETRA_PARTITION_LIST && c->stages.count == 3 && c->stages.blocks.count == 3);
  ck_assert(c->stages.blocks.values[0] == 2 && c->stages.blocks.values[2] == 5);
  ck_assert(c->method.accumulate == 8 && strcmp(c->method.name, "true") == 0 && strcmp(c->model.weights, "010") == 0);
  ck_assert(c->optim.lr == 0.1 + 0.2 && c->optim.lr_scaling == PETRA_LR_NONE && c->optim.momentum == 0);
  ck_assert(!c->optim.nesterov && c->optim.weight_decay == 1e-300 && c->optim.decay_norm_and_bias);
  ck_assert(c->optim.beta1 == 0.5 && c->optim.beta2 == 0.25 && c->optim.epsilon == 0 && c->optim.clip == 10);
  ck_assert(c->optim.momentum_decay == 0.125 && c->optim.muon_scale == PETRA_MUON_RMS);
  ck_assert(c->optim.rotation_sides == PETRA_ROTATE_SMALLER && c->optim.rotation_every == 100000);
  ck_assert(c->optim.trust_coefficient == 0.25);
  ck_assert(c->optim.adam_lr_share == 0.75 && c->lr.schedule == PETRA_LR_WSD && c->lr.final == 0.0625);
  ck_assert(c->lr.epochs == 90 && c->lr.decay_epochs == 9);
  ck_assert(c->lr.warmup_epochs == 0 && c->lr.milestones.count == 0 && c->lr.factor == 1e20);
  ck_assert(c->device.backend == PETRA_BACKEND_REF && c->device.precision == PETRA_PRECISION_FP64);
  ck_assert(c->device.threads == 1024 && !c->device.deterministic && c->cluster.engines == 2);
  ck_assert(c->device.streams == 16 && c->device.wide_gradients && strcmp(c->device.plans, "h100.plans") == 0);
  ck_assert(c->cluster.cost.model == PETRA_COST_CONSTANT && c->cluster.cost.forward_s == 0.001);
  ck_assert(c->cluster.cost.backward_s == 1e6 && c->cluster.cost.reconstruct_s == 0 &&
            c->cluster.cost.update_s == 0.5 && c->cluster.cost.weight_gradient_s == 0.25);
  ck_assert(c->method.head == PETRA_HEAD_SPLIT && c->method.chunks == 4 && c->method.credit == 9);
  const petra_mitigation *m = &c->method.mitigation;
  ck_assert(m->lr_rescheduling == 40 && m->discrepancy_correction == 0.1 && m->spike_compensation);
  ck_assert(m->weight_prediction == PETRA_PREDICTION_DIFFERENCE && m->prediction_horizon == 2);
  ck_assert(m->gradient_shrinking == 0.5 && m->stage_momentum == 0.99 && m->sync_warmup_epochs == 3 &&
            m->error_feedback);
  ck_assert_str_eq(c->method.schedule, "own.schedule");
  ck_assert(c->cluster.stages == 100000 && c->cluster.message.forward_bytes == INT64_C(1000000000000000) &&
            c->cluster.message.backward_bytes == 5 && c->cluster.message.gradient_bytes == 6 &&
            c->cluster.replicas == 3);
  ck_assert(c->cluster.link.latency_s == 1e-6 && c->cluster.link.bandwidth_Bps == 1.25e10 &&
            c->cluster.link.sharing == PETRA_LINK_FAIR && c->cluster.node_size == 8 && c->cluster.card_Bps == 1e18);
  ck_assert(c->cluster.node_link.preset == PETRA_LINK_IB_XDR && c->cluster.node_link.latency_s == 0.25 &&
            c->cluster.node_link.bandwidth_Bps == 9e17);
  ck_assert(c->cluster.jitter.model == PETRA_JITTER_EXPONENTIAL && c->cluster.jitter.scale == 10);
  ck_assert(c->cluster.stragglers.stages.count == 2 && c->cluster.stragglers.stages.values[1] == 7 &&
            c->cluster.stragglers.factor == 1.5);
  ck_assert(c->cluster.speeds.count == 4 && c->cluster.speeds.values[1] == 0.5 && c->cluster.speeds.values[2] == 1e-6 &&
            c->cluster.speeds.values[3] == 1e6);
  ck_assert(strcmp(c->cluster.cost.profile, "some/where.h5") == 0 && c->profile.warmup == 0 &&
            c->profile.repetitions == 1000000);
  const petra_int_list *extra = &c->method.extra_delay;
  ck_assert(extra->count == 3 && extra->values[1] == 7 && extra->values[2] == 0);
  ck_assert(c->cluster.cost.launch_s == 1e-6 && c->cluster.cost.efficiency.matrix_flops == 0.5 &&
            c->cluster.cost.efficiency.matrix_bytes == 1e-9 && c->cluster.cost.efficiency.elementwise_bytes == 2);
  ck_assert(c->cluster.host.share == PETRA_HOST_NODE && c->cluster.host.action_s == 0.002 &&
            c->cluster.host.kernel_s == 1.5e-5 && c->cluster.host.ahead == 3);
  ck_assert(c->cluster.pauses.mean_between_s == 3 && c->cluster.pauses.duration_s == 4 &&
            c->cluster.failures.mean_between_s == 5 && c->cluster.failures.restart_s == 6);
  ck_assert(c->probe.per_epoch == 15 && c->probe.gradients);
  petra_config_destroy(c);
}
END_TEST

/* Where a key takes a number or a list. */
START_TEST(a_number_is_a_list_of_one) {
  petra_config *config;
  ck_assert_int_eq(petra_config_load(NULL, (const char *const[]){"method.extra_delay=12"}, 1, &config), PETRA_OK);
  ck_assert(config->method.extra_delay.count == 1 && config->method.extra_delay.values[0] == 12);
  petra_config_destroy(config);
}
END_TEST

START_TEST(bad_configs_give_one_line) {
  for (int i = 0; i < HARNESS_COUNT(bad); i++) {
    petra_config *config = NULL;
    char place[128];
    petra_status status = load_bytes(bad[i].text, strlen(bad[i].text), &config);
    const petra_status expected = strstr(bad[i].reason, "cannot be read") ? PETRA_IO : PETRA_CONFIG;
    ck_assert_msg(status == expected, "'%s' gave status %d", bad[i].text, (int)status);
    ck_assert_ptr_null(config);
    ck_assert_int_eq(harness_lines, 1);
    snprintf(place, sizeof place, "%s%s", scratch_path(), bad[i].place);
    ck_assert_msg(strncmp(harness_line, place, strlen(place)) == 0, "'%s', expected to begin '%s'", harness_line,
                  place);
    ck_assert_msg(strstr(harness_line, bad[i].reason), "'%s' lacks '%s'", harness_line, bad[i].reason);
    ck_assert_msg(strstr(harness_line, "expected"), "'%s' says nothing of what was expected", harness_line);
  }
}
END_TEST

START_TEST(nul_and_size_and_nesting) {
  static char big[(1 << 20) + 1];
  petra_config *config = NULL;
  ck_assert_int_eq(load_bytes("run:\n  name: a\0b\n", 17, &config), PETRA_CONFIG);
  ck_assert_logged(":2: holds the character U+0000");
  memset(big, '[', sizeof big);
  ck_assert_int_eq(load_bytes(big, sizeof big - 1, &config), PETRA_CONFIG);
  ck_assert_logged(":1: nested too deeply");
  ck_assert_int_eq(load_bytes(big, sizeof big, &config), PETRA_CONFIG);
  ck_assert_logged("longer than 1048576 bytes");
  memset(big, '#', sizeof big);
  memcpy(big, "{}\n", 3);
  ck_assert_int_eq(load_bytes(big, sizeof big - 1, &config), PETRA_OK);
  petra_config_destroy(config);
  memset(big, 'k', 100000);
  ck_assert_int_eq(load_bytes(big, 100000, &config), PETRA_CONFIG);
  ck_assert_int_eq(harness_lines, 1);
}
END_TEST

START_TEST(good_spellings) {
  static const char *const empty[] = {"{}", "\xef\xbb\xbf{}", "run: {}\ndata: {}\n"};
  static const char *const nothing[] = {"", "\n# nothing\n", "---\n", "\xef\xbb\xbf"};
  petra_config *c = NULL;
  for (int i = 0; i < HARNESS_COUNT(nothing); i++) {
    ck_assert_int_eq(load_bytes(nothing[i], strlen(nothing[i]), &c), PETRA_CONFIG);
    ck_assert_logged("contains no key; expected a config");
  }
  for (int i = 0; i < HARNESS_COUNT(empty); i++) {
    ck_assert_msg(load_bytes(empty[i], strlen(empty[i]), &c) == PETRA_OK, "%s", harness_line);
    char *text = printed(c);
    ck_assert_str_eq(text, defaults);
    free(text);
    petra_config_destroy(c);
  }
  const char *text = "\"run\": {\"epochs\": +3, name: 2024, output: yes}\r\n"
                     "data: {augment: [flip, crop], path: >-\n    a\n    b\n  }\n"
                     "optim: {lr: 1, momentum: .5, weight_decay: 1.e-1}\n"
                     "lr: {milestones: [\n  1,\n  2]}\n";
  ck_assert_int_eq(load_bytes(text, strlen(text), &c), PETRA_CONFIG); /* a block scalar inside braces */
  text = "\"run\": {\"epochs\": +3, name: 2024, output: yes}\r\n"
         "data:\r\n  augment: [flip, crop]\r\n  path: >-\r\n    a\r\n    b\r\n"
         "optim: {lr: 1, momentum: .5, weight_decay: 1.e-1}\n"
         "lr: {milestones: [\n  1,\n  2], factor: -0.0}\n";
  ck_assert_msg(load_bytes(text, strlen(text), &c) == PETRA_OK, "%s", harness_line);
  ck_assert_int_eq(c->run.epochs, 3);
  ck_assert_str_eq(c->run.name, "2024");
  ck_assert_str_eq(c->run.output, "yes");
  ck_assert_str_eq(c->data.path, "a b");
  ck_assert_uint_eq(c->data.augment, PETRA_AUGMENT_CROP | PETRA_AUGMENT_FLIP);
  ck_assert(c->optim.lr == 1.0 && c->optim.momentum == 0.5 && c->optim.weight_decay == 0.1);
  ck_assert(c->lr.milestones.count == 2 && 1 / c->lr.factor > 0);
  petra_config_destroy(c);
}
END_TEST

START_TEST(unreadable_files) {
  petra_config *config = NULL;
  harness_clear();
  ck_assert_int_eq(petra_config_load("no/such/file.yaml", NULL, 0, &config), PETRA_IO);
  ck_assert_str_eq(harness_line,
                   "no/such/file.yaml: cannot be read: No such file or directory; expected a config file in YAML");
  harness_clear();
  ck_assert_int_eq(petra_config_load("/", NULL, 0, &config), PETRA_IO);
  ck_assert_logged("/: cannot be read: Is a directory");
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_ptr_null(config);
}
END_TEST

/* Loads `text` through a pipe that is standard input, or through the pipe's path. */
static petra_status load_pipe(const char *text, bool as_stdin, petra_config **out) {
  int ends[2], saved = dup(STDIN_FILENO);
  char path[32] = "-";
  ck_assert_int_eq(pipe(ends), 0);
  ck_assert_int_eq(write(ends[1], text, strlen(text)), (ssize_t)strlen(text)); /* fits into the pipe's buffer */
  close(ends[1]);
  if (as_stdin) {
    dup2(ends[0], STDIN_FILENO);
    clearerr(stdin);
  } else {
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
  }
  harness_clear();
  petra_status status = petra_config_load(path, NULL, 0, out);
  close(ends[0]);
  if (saved >= 0) {
    dup2(saved, STDIN_FILENO);
    close(saved);
  }
  return status;
}

START_TEST(pipes_and_standard_input) {
  petra_config *config = NULL;
  for (int as_stdin = 0; as_stdin < 2; as_stdin++) {
    ck_assert_msg(load_pipe(changed, as_stdin, &config) == PETRA_OK, "%s", harness_line);
    ck_assert_int_eq(config->data.batch, 1000000000);
    petra_config_destroy(config);
  }
  config = NULL;
  ck_assert_int_eq(load_pipe("run:\n  seed: x\n", true, &config), PETRA_CONFIG);
  ck_assert_logged("standard input:2: run.seed: 'x' is not an integer");
}
END_TEST

START_TEST(sets_override_in_order) {
  static const char *const sets[] = {"data.batch=8",
                                     "data.batch=16",
                                     "lr.milestones=[1, 2]",
                                     "model.weights=",
                                     "run.name='a=b'",
                                     "data.augment=[]",
                                     "optim.lr=1e-3",
                                     "run.drain=true",
                                     "run.output=a b",
                                     "device.precision=fp64",
                                     "stages.blocks= [ 7 ] ",
                                     "data.path=",
                                     "data.path=\"/my #1 set \"",
                                     "run.output=a b#c",
                                     "data.workers= 3 "};
  petra_config *c = NULL;
  ck_assert_msg(load_sets(sets, HARNESS_COUNT(sets), &c) == PETRA_OK, "%s", harness_line);
  ck_assert_int_eq(c->data.batch, 16);
  ck_assert(c->lr.milestones.count == 2 && c->lr.milestones.values[1] == 2);
  ck_assert_str_eq(c->model.weights, "");
  ck_assert_str_eq(c->data.path, "/my #1 set ");
  ck_assert_str_eq(c->run.name, "a=b");
  ck_assert_str_eq(c->run.output, "a b#c");
  ck_assert(c->data.augment == 0 && c->optim.lr == 1e-3 && c->run.drain == PETRA_DRAIN_TRUE);
  ck_assert(c->device.precision == PETRA_PRECISION_FP64 && c->stages.blocks.count == 1);
  petra_config_destroy(c);
}
END_TEST

START_TEST(bad_sets_give_one_line) {
  static const char *const cases[][2] = {
      {"run.epochs=1.5", ": '1.5' is not an integer; expected an integer, 1 .. 1000000"},
      {"run.epochs=", ": no value; expected an integer"},
      {"run.epochs=~", ": '~' is not an integer"},
      {"run.epochs=\"3\"", ": \"3\" is a string"},
      {"run.checkpoint_every=1.5", ": '1.5' is not a period; expected a number of epochs, or \"N microbatches\" or"},
      {"run.checkpoint_every=-1", ": '-1' is out of range"},
      {"run.checkpoint_every=3 hours", ": '3 hours' is not a period"},
      {"run.checkpoint_every=minutes", ": 'minutes' is not a period"},
      {"run.checkpoint_every=2.5 microbatches", ": '2.5 microbatches' is not a period"},
      {"run.checkpoint_every=1e13 minutes", ": '1e13 minutes' is out of range"},
      {"run.epochs", ": no '='; expected --set key.path=value"},
      {"data.augment=", ": no value; expected a list"},
      {"run.name=", ": \"\" is not a file name"},
      {"run.name=#x", ": '#x' is a comment of YAML and would be lost; expected a value without it (in quotes if it "
                      "belongs to the value: --set 'run.name=\"...\"')"},
      {"data.path=/data/my #1 set", ": '#1 set' is a comment of YAML"},
      {"data.path=/\u00fc\t#1", ": '#1' is a comment of YAML"},
      {"data.path=\"/data\" # b", ": '# b' is a comment of YAML"},
      {"run.epochs=5 #6", ": '#6' is a comment of YAML and would be lost; expected a value without it"},
      {"lr.milestones=[1, # a\n 2]", " is a comment of YAML"},
      {"data.path=--- a", ": a document marker of YAML"},
      {"data.path=a\n...", ": a document marker of YAML"},
      {"data.path=%YAML 1.1\n---\na", ": a document marker of YAML"},
      {"data.path=a\nb", ": a line break"},
      {"data.path=|", ": '|' begins a block of YAML"},
      {"data.path=>-\n a", ": '>' begins a block of YAML"},
      {"data.path=\"a\n b\"", ": a line break"},
      {"data.path=a\xc2\x85"
       "b",
       ": a line break"},
      {"data.path= a", ": begins or ends with a space"},
      {"data.path=a ", ": begins or ends with a space"},
      {"data.path=\xef\xbb\xbf"
       "a",
       ": holds the character U+FEFF"},
      {"run.name=a: b", ": a mapping; expected a plain file name"},
      {"run.name=[", ": not YAML: "},
      {"run.name=*a", ": an alias"},
      {"run.name=\xff", "byte 0xff is not UTF-8"},
      {"run.epoc=3", ": unknown key; expected one of name, seed"},
      {"run.epoc=3", "did you mean run.epochs?"},
      {"data.set=CIFAR-10", ": 'CIFAR-10' is unknown; expected cifar10, cifar100"},
      {"data.set=CIFAR-10", "tokens or grammar; did you mean cifar10?"},
      {"data.augment=[flp]", "; did you mean flip?"},
      {"optim.name=adamz", "; did you mean adamw?"},
      {"foo.bar=3", ": unknown key; expected one of run, data"},
      {"run={}", ": a section; expected a key in it"},
      {"=3", ": unknown key; expected one of run, data"},
      {"lr.milestones=[1, x]", ": 'x' is not an integer"},
  };
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    petra_config *config = NULL;
    char start[64];
    ck_assert_int_eq(load_sets(&cases[i][0], 1, &config), PETRA_CONFIG);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_ptr_null(config);
    int shown = (int)strcspn(cases[i][0], "\xff\xef\xc2\n\t"); /* which are shown escaped */
    snprintf(start, sizeof start, "--set %.*s", shown, cases[i][0]);
    ck_assert_msg(strncmp(harness_line, start, strlen(start)) == 0, "'%s'", harness_line);
    ck_assert_logged(cases[i][1]);
  }
}
END_TEST

START_TEST(later_failures_name_the_place) {
  static const char *const sets[] = {"data.workers=3"};
  const char *text = "data:\n  batch: 3\n  workers: 4\n";
  petra_config *config = NULL;
  FILE *file = fopen(scratch_path(), "w");
  fputs(text, file);
  fclose(file);
  ck_assert_int_eq(petra_config_load(scratch_path(), sets, 1, &config), PETRA_OK);
  remove(scratch_path());
  char expected[128];
  snprintf(expected, sizeof expected, "%s:2: data.batch: must be even, not 3", scratch_path());
  ck_assert_int_eq(petra_config_fail(config, "data.batch", "must be even, not %d", 3), PETRA_CONFIG);
  ck_assert_str_eq(harness_line, expected);
  petra_config_fail(config, "data.workers", "too many");
  ck_assert_str_eq(harness_line, "--set data.workers=3: too many");
  petra_config_fail(config, "data.limit", "too few");
  snprintf(expected, sizeof expected, "%s: data.limit (default): too few", scratch_path());
  ck_assert_str_eq(harness_line, expected);
  petra_config_destroy(config);
  petra_config_destroy(NULL);
}
END_TEST

/* Each key alone at another value: a difference to those who ask for roles from its own on, and to no one else. */
/* Files in a folder of the running process. */
static void write_file(const char *name, const char *text) {
  char path[96];
  snprintf(path, sizeof path, "%s.d/%s", scratch_path(), name);
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static const char *in_folder(const char *name) {
  static char path[96];
  snprintf(path, sizeof path, "%s.d/%s", scratch_path(), name);
  return path;
}

static void make_folders(void) {
  ck_assert_int_eq(mkdir(in_folder(""), 0777), 0);
  ck_assert_int_eq(mkdir(in_folder("sub"), 0777), 0);
}

static void remove_folders(void) {
  static const char *const names[] = {"sub/first.yaml", "second.yaml", "third.yaml", "many.yaml", "sub", ""};
  for (int i = 0; i < HARNESS_COUNT(names); i++)
    remove(in_folder(names[i]));
}

/* A file overrides its base key by key; a base is found beside the file that names it; lines keep their files. */
START_TEST(bases) {
  static const char *const sets[] = {"run.seed=9"};
  petra_config *c = NULL;
  char expected[192];
  make_folders();
  write_file("sub/first.yaml", "# a comment\nbase: ../second.yaml\nrun: {seed: 3, epochs: 4}\nlr: {milestones: [1]}\n");
  write_file("second.yaml", "run: {epochs: 5, name: b}\nbase: third.yaml\nlr:\n  milestones: [2, 3]\n");
  write_file("third.yaml", "data: {batch: 6,\n  limit: 7}\nrun: {name: c}\n");
  harness_clear();
  ck_assert_msg(petra_config_load(in_folder("sub/first.yaml"), sets, 1, &c) == PETRA_OK, "%s", harness_line);
  ck_assert_int_eq(harness_lines, 0);
  ck_assert(c->run.seed == 9 && c->run.epochs == 4 && c->data.batch == 6 && c->data.limit == 7);
  ck_assert_str_eq(c->run.name, "b");
  ck_assert(c->lr.milestones.count == 1 && c->lr.milestones.values[0] == 1);
  char *text = printed(c); /* whole: no base is left */
  ck_assert_ptr_null(strstr(text, "\nbase:"));
  ck_assert_ptr_nonnull(strstr(text, "  batch: 6\n"));
  free(text);
  petra_config_fail(c, "data.limit", "x");
  snprintf(expected, sizeof expected, "%s.d/sub/../third.yaml:2: data.limit: x", scratch_path());
  ck_assert_str_eq(harness_line, expected);
  petra_config_fail(c, "data.workers", "x");
  snprintf(expected, sizeof expected, "%s.d/sub/first.yaml: data.workers (default): x", scratch_path());
  ck_assert_str_eq(harness_line, expected);
  petra_config_destroy(c);
  write_file("third.yaml", "run: {name: c}\n\ndata: {batch: x}\n");
  ck_assert_int_eq(petra_config_load(in_folder("second.yaml"), NULL, 0, &c), PETRA_CONFIG);
  ck_assert_logged("third.yaml:3: data.batch: 'x' is not an integer");
  remove_folders();
}
END_TEST

START_TEST(bases_that_have_no_end) {
  petra_config *c = NULL;
  char expected[512], folder[80];
  make_folders();
  snprintf(folder, sizeof folder, "%s.d", scratch_path());
  write_file("sub/first.yaml", "base: ../second.yaml\n");
  write_file("second.yaml", "run: {}\nbase: sub/first.yaml\n");
  harness_clear();
  ck_assert_int_eq(petra_config_load(in_folder("second.yaml"), NULL, 0, &c), PETRA_CONFIG);
  snprintf(expected, sizeof expected,
           "%s/sub/first.yaml:1: base: a cycle: %s/second.yaml -> %s/sub/first.yaml -> %s/sub/../second.yaml; expected "
           "a file that is not among them",
           folder, folder, folder, folder);
  ck_assert_str_eq(harness_line, expected);
  ck_assert_int_eq(harness_lines, 1);
  write_file("third.yaml", "base: third.yaml\n");
  ck_assert_int_eq(petra_config_load(in_folder("third.yaml"), NULL, 0, &c), PETRA_CONFIG);
  ck_assert_logged("third.yaml:1: base: a cycle: ");
  remove_folders();
}
END_TEST

/* Its latency and bandwidth, unless they stand in the same file or in a --set; a later layer's preset is the one that counts. */
START_TEST(presets_of_links) {
  static const struct {
    const char *text, *sets[2];
    double latency_s, bandwidth_Bps;
  } cases[] = {
      {"{}", {NULL}, 0, 0},
      {"cluster: {link: {preset: 10gbe}}", {NULL}, 20e-6, 1.25e9},
      {"cluster: {link: {latency_s: 1, preset: 10gbe}}", {NULL}, 1, 1.25e9},
      {"cluster: {link: {preset: 10gbe, bandwidth_Bps: 7}}", {NULL}, 20e-6, 7},
      {"cluster: {link: {preset: 10gbe}}", {"cluster.link.bandwidth_Bps=7"}, 20e-6, 7},
      {"cluster: {link: {latency_s: 1}}", {"cluster.link.preset=nvlink4"}, 2e-6, 450e9},
      {"cluster: {link: {preset: 10gbe}}", {"cluster.link.latency_s=3", "cluster.link.preset=nvlink4"}, 3, 450e9},
      {"cluster: {link: {preset: 10gbe}}", {"cluster.link.preset=none"}, 0, 0},
  };
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    const petra_config_text text = {"a.yaml", cases[i].text, strlen(cases[i].text)};
    const int sets = cases[i].sets[0] ? cases[i].sets[1] ? 2 : 1 : 0;
    petra_config *c = NULL;
    ck_assert_int_eq(petra_config_load_text(&text, cases[i].sets, sets, &c), PETRA_OK);
    ck_assert_double_eq(c->cluster.link.latency_s, cases[i].latency_s);
    ck_assert_double_eq(c->cluster.link.bandwidth_Bps, cases[i].bandwidth_Bps);
    expect_printed_alike(c);
    petra_config_destroy(c);
  }
  for (int p = 1; p < petra_link_preset_count(); p++) {
    const petra_link_preset *link = petra_link_preset_of(p);
    ck_assert_str_eq(link->name, petra_config_choice_name("cluster.link.preset", p));
    ck_assert_str_eq(link->name, petra_config_choice_name("cluster.node_link.preset", p));
    ck_assert(link->latency_s > 0 && link->bandwidth_Bps > 0 && *link->latency_source && *link->bandwidth_source);
  }
  ck_assert_str_eq(petra_config_choice_name("cluster.link.preset", petra_link_preset_count()), "?");
}
END_TEST

/* As for cluster.link; figures without a preset replace `same`. */
START_TEST(presets_of_links_inside_a_node) {
  static const struct {
    const char *text, *sets[2];
    unsigned preset;
    double latency_s, bandwidth_Bps;
  } cases[] = {
      {"{}", {NULL}, PETRA_NODE_LINK_SAME, 0, 0},
      {"cluster: {link: {preset: 10gbe}}", {NULL}, PETRA_NODE_LINK_SAME, 0, 0},
      {"cluster: {node_link: {preset: nvlink5}}", {NULL}, PETRA_LINK_NVLINK5, 2e-6, 900e9},
      {"cluster: {node_link: {preset: nvlink5, latency_s: 1}}", {NULL}, PETRA_LINK_NVLINK5, 1, 900e9},
      {"cluster: {node_link: {bandwidth_Bps: 7}}", {NULL}, PETRA_LINK_NONE, 0, 7},
      {"cluster: {node_link: {latency_s: 7}}", {"cluster.node_link.bandwidth_Bps=5"}, PETRA_LINK_NONE, 7, 5},
      {"cluster: {node_link: {preset: xgmi}}", {"cluster.node_link.latency_s=3"}, PETRA_LINK_XGMI, 3, 64e9},
      {"cluster: {node_link: {preset: xgmi}}", {"cluster.node_link.preset=same"}, PETRA_NODE_LINK_SAME, 0, 0},
      {"cluster: {node_link: {preset: same}}", {"cluster.node_link.preset=ib-xdr"}, PETRA_LINK_IB_XDR, 2e-6, 100e9},
      {"cluster: {node_link: {preset: none}}", {NULL}, PETRA_LINK_NONE, 0, 0},
  };
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    const petra_config_text text = {"a.yaml", cases[i].text, strlen(cases[i].text)};
    petra_config *c = NULL;
    ck_assert_int_eq(petra_config_load_text(&text, cases[i].sets, cases[i].sets[0] ? 1 : 0, &c), PETRA_OK);
    ck_assert_uint_eq(c->cluster.node_link.preset, cases[i].preset);
    ck_assert_double_eq(c->cluster.node_link.latency_s, cases[i].latency_s);
    ck_assert_double_eq(c->cluster.node_link.bandwidth_Bps, cases[i].bandwidth_Bps);
    expect_printed_alike(c);
    petra_config_destroy(c);
  }
}
END_TEST

START_TEST(configs_differ_by_key_and_role) {
  static const struct {
    const char *key;
    petra_config_role role;
  } others[] = {{"run.name", PETRA_ROLE_PLACE},
                {"run.output", PETRA_ROLE_PLACE},
                {"run.keep_checkpoint", PETRA_ROLE_PLACE},
                {"run.epochs", PETRA_ROLE_LENGTH},
                {"run.max_microbatches", PETRA_ROLE_LENGTH},
                {"run.checkpoint_every", PETRA_ROLE_WAY},
                {"data.path", PETRA_ROLE_WAY},
                {"data.workers", PETRA_ROLE_WAY},
                {"run.mode", PETRA_ROLE_WAY},
                {"cluster.placement", PETRA_ROLE_WAY},
                {"cluster.timeout_s", PETRA_ROLE_WAY},
                {"cluster.transport", PETRA_ROLE_WAY},
                {"cluster.gpus", PETRA_ROLE_WAY},
                {"device.streams", PETRA_ROLE_WAY}};
  petra_config *base = NULL, *values = NULL;
  const petra_config_key *keys = petra_config_keys;
  const int count = petra_config_key_count;
  int seen = 0, tried = 0;
  ck_assert_int_eq(petra_config_load(NULL, NULL, 0, &base), PETRA_OK);
  ck_assert_int_eq(load_bytes(changed, strlen(changed), &values), PETRA_OK);
  for (int i = 0; i < count; i++) {
    petra_config *other = NULL;
    char set[1000] = "", before[200] = "", *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    petra_config_print_value(&keys[i], values, stream);
    fclose(stream);
    snprintf(set, sizeof set, "%s=%s", keys[i].path, text);
    ck_assert_msg(load_sets(&(const char *){set}, 1, &other) == PETRA_OK, "%s", harness_line);
    petra_config_role role = PETRA_ROLE_RESULT;
    for (int k = 0; k < HARNESS_COUNT(others); k++)
      if (strcmp(others[k].key, keys[i].path) == 0) {
        role = others[k].role;
        seen++;
      }
    stream = fmemopen(before, sizeof before, "w");
    petra_config_print_value(&keys[i], base, stream);
    fclose(stream);
    bool same = strcmp(before, text) == 0; /* a key with one value only */
    tried += !same;
    for (petra_config_role last = PETRA_ROLE_RESULT; last <= PETRA_ROLE_PLACE; last++) {
      petra_config_difference difference = {0};
      bool differs = petra_config_differs(base, other, last, &difference);
      ck_assert_msg(differs == (!same && role <= last), "%s, role %d", keys[i].path, (int)last);
      if (differs && strncmp(keys[i].path, "cluster.node_link.", strlen("cluster.node_link.")) == 0) {
        ck_assert_str_eq(difference.key, "cluster.node_link.preset"); /* which the two others set as well */
      } else if (differs) {
        ck_assert_str_eq(difference.key, keys[i].path);
        ck_assert_str_eq(difference.a, before);
        ck_assert_str_eq(difference.b, text);
      }
    }
    free(text);
    petra_config_destroy(other);
  }
  ck_assert_int_eq(seen, HARNESS_COUNT(others));
  ck_assert_int_ge(tried, count - 1); /* optim.name, which comes with its rate */
  petra_config_destroy(base);
  petra_config_destroy(values);
}
END_TEST

START_TEST(choice_names) {
  ck_assert_str_eq(petra_config_choice_name("device.precision", PETRA_PRECISION_FP64), "fp64");
  ck_assert_str_eq(petra_config_choice_name("stages.partition", PETRA_PARTITION_BALANCED), "balanced");
  ck_assert_str_eq(petra_config_choice_name("data.augment", PETRA_AUGMENT_FLIP), "flip");
  ck_assert_str_eq(petra_config_choice_name("device.precision", 4), "?");
  ck_assert_str_eq(petra_config_choice_name("device.precision", -1), "?");
  ck_assert_str_eq(petra_config_choice_name("data.batch", 0), "?");
  ck_assert_str_eq(petra_config_choice_name("no.key", 0), "?");
}
END_TEST

static bool fail_nth(void *context, size_t bytes) {
  (void)bytes;
  return (*(int *)context)-- == 0;
}

/* Under a leak checker this shows that every way out releases what was made so far. */
START_TEST(every_allocation_may_fail) {
  static const char *const sets[] = {"run.name=x", "lr.milestones=[1]", "data.path=", "run.name=y",
                                     "data.augment=[crop]"};
  FILE *file = fopen(scratch_path(), "w");
  fputs(changed, file);
  fclose(file);
  petra_status status = PETRA_NO_MEMORY;
  int n = 0;
  for (; status != PETRA_OK && n < 1000; n++) {
    petra_config *config = NULL;
    int countdown = n;
    harness_clear();
    petra_mem_set_hook(fail_nth, &countdown);
    status = petra_config_load(scratch_path(), sets, HARNESS_COUNT(sets), &config);
    petra_mem_set_hook(NULL, NULL);
    if (status == PETRA_OK) {
      petra_config_destroy(config);
      break;
    }
    ck_assert_int_eq(status, PETRA_NO_MEMORY);
    ck_assert_ptr_null(config);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged("out of memory");
  }
  remove(scratch_path());
  ck_assert_int_eq(status, PETRA_OK);
  ck_assert_int_gt(n, 50); /* the config, its strings and labels: a smaller number means that nothing was injected */
}
END_TEST

START_TEST(help_lists_every_key) {
  char *help = NULL, *markdown = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&help, &size);
  petra_config_help(stream);
  fclose(stream);
  stream = open_memstream(&markdown, &size);
  petra_config_help_markdown(stream);
  fclose(stream);
  ck_assert_ptr_nonnull(strstr(help, "\nmodel.depth: revnet, resnet: layers (18, 34, 50 or 101); "));
  ck_assert_ptr_nonnull(strstr(help, "cluster.cost.update_s"));
  ck_assert_ptr_nonnull(strstr(markdown, "| `lr.milestones` | list of integers | `[150, 225]` | "));
  int rows = 0, keys = 0;
  for (const char *at = markdown; (at = strstr(at, "\n| `")); at++)
    rows++;
  for (const char *at = defaults; (at = strchr(at, '\n')); at++)
    keys++;
  ck_assert_int_eq(rows, keys - 22); /* the printed config less the headings of its sections */
  free(help);
  free(markdown);
}
END_TEST

START_TEST(print_reports_a_full_disk) {
  petra_config *config = NULL;
  FILE *full = fopen("/dev/full", "w");
  if (!full)
    return; /* a system without this device */
  ck_assert_int_eq(petra_config_load(NULL, NULL, 0, &config), PETRA_OK);
  harness_clear();
  ck_assert_int_eq(petra_config_print(config, full), PETRA_IO);
  ck_assert_str_eq(harness_line, "the config could not be written: No space left on device");
  fclose(full);
  petra_config_destroy(config);
}
END_TEST

/* Another optimiser than before gives its keys its own defaults, unless they stand beside it; the same one changes nothing. */
START_TEST(optimisers_bring_their_defaults) {
  static const struct {
    const char *text, *sets[3];
    double lr, momentum, beta2, weight_decay;
    petra_lr_scaling scaling;
  } cases[] = {
      {"optim: {lr: 2, momentum: .5}", {"optim.name=sgd"}, 2, 0.5, 0.999, 5e-4, PETRA_LR_GOYAL},
      {"optim: {lr: 2, momentum: .5}", {"optim.name=adamw", "optim.lr=1"}, 1, 0.9, 0.999, 0.01, PETRA_LR_NONE},
      {"optim: {name: lion, lr: 2}", {NULL}, 2, 0.9, 0.99, 0, PETRA_LR_NONE},
      {"optim: {name: lion, lr: 2}", {"optim.beta2=.5"}, 2, 0.9, 0.5, 0, PETRA_LR_NONE},
      {"optim: {weight_decay: 3, lr: 2, name: lion, lr_scaling: goyal}", {NULL}, 2, 0.9, 0.99, 3, PETRA_LR_GOYAL},
      {"optim: {name: lion, lr: 2, beta2: .5}", {"optim.name=muon", "optim.lr=1"}, 1, 0.95, 0.999, 0.1, PETRA_LR_NONE},
      {"optim: {name: muon, lr: 2, beta2: .5}",
       {"optim.name=basis-rotation", "optim.lr=1"},
       1,
       0.9,
       0.999,
       0.01,
       PETRA_LR_NONE},
      {"optim: {name: muon, lr: 2, nesterov: false}",
       {"optim.name=lars", "optim.lr=1"},
       1,
       0.9,
       0.999,
       0,
       PETRA_LR_NONE},
      {"optim: {name: adamw, lr: 2, beta2: .5}", {"optim.name=adam", "optim.lr=1"}, 1, 0.9, 0.999, 0, PETRA_LR_NONE},
      {"optim: {name: lion, lr: 2, beta2: .5}", {"optim.name=lion"}, 2, 0.9, 0.5, 0, PETRA_LR_NONE},
      {"optim: {name: lion, lr: 2, beta2: .5}", {"optim.name=sgd"}, 0.1, 0.9, 0.999, 5e-4, PETRA_LR_GOYAL},
  };
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    const petra_config_text text = {"a.yaml", cases[i].text, strlen(cases[i].text)};
    petra_config *c;
    int sets = 0;
    while (cases[i].sets[sets])
      sets++;
    ck_assert_int_eq(petra_config_load_text(&text, cases[i].sets, sets, &c), PETRA_OK);
    ck_assert_msg(c->optim.lr == cases[i].lr && c->optim.momentum == cases[i].momentum, "case %d", i);
    ck_assert_msg(c->optim.beta2 == cases[i].beta2 && c->optim.weight_decay == cases[i].weight_decay, "case %d", i);
    ck_assert_msg(c->optim.lr_scaling == cases[i].scaling && petra_optim_check(c) == PETRA_OK, "case %d", i);
    expect_printed_alike(c);
    petra_config_destroy(c);
  }
  static const char *const foreign[] = {"optim.beta1=.5", "optim.momentum_decay=.5", "optim.muon_scale=rms",
                                        "optim.rotation_every=5", "optim.trust_coefficient=1"};
  for (int i = 0; i < HARNESS_COUNT(foreign); i++) {
    petra_config *c;
    ck_assert_int_eq(petra_config_load(NULL, &foreign[i], 1, &c), PETRA_OK);
    ck_assert_int_eq(petra_optim_check(c), PETRA_CONFIG);
    ck_assert_logged("not a key of optim.name: sgd, but of ");
    petra_config_destroy(c);
  }
}
END_TEST

/* A copy has all values and the places where they were set, and lists of its own. */
START_TEST(copies_are_equal) {
  static const char text[] = "stages: {partition: list, blocks: [1, 2, 3]}\ncluster: {speeds: [1, 0.5]}\n"
                             "optim: {name: adamw, lr: 0.01}\nrun: {checkpoint_every: 5 minutes}\n";
  const petra_config_text file = {"c.yaml", text, sizeof text - 1};
  petra_config *config, *copy;
  ck_assert_int_eq(petra_config_load_text(&file, NULL, 0, &config), PETRA_OK);
  ck_assert_int_eq(petra_config_copy(config, &copy), PETRA_OK);
  petra_config_difference difference;
  ck_assert(!petra_config_differs(config, copy, PETRA_ROLE_PLACE, &difference));
  copy->stages.blocks.values[1] = 7;
  ck_assert_int_eq(config->stages.blocks.values[1], 2);
  petra_config_destroy(config);
  ck_assert_refused(CONFIG, "c.yaml:1: stages.blocks: why", petra_config_fail(copy, "stages.blocks", "why"));
  ck_assert_refused(CONFIG, "c.yaml:3: optim.lr: why", petra_config_fail(copy, "optim.lr", "why"));
  petra_config_destroy(copy);
}
END_TEST

int main(void) {
  const TTest *tests[] = {print_load_print_is_identical,
                          values_reach_their_members,
                          a_number_is_a_list_of_one,
                          bad_configs_give_one_line,
                          nul_and_size_and_nesting,
                          good_spellings,
                          unreadable_files,
                          pipes_and_standard_input,
                          sets_override_in_order,
                          bad_sets_give_one_line,
                          later_failures_name_the_place,
                          bases,
                          bases_that_have_no_end,
                          presets_of_links,
                          presets_of_links_inside_a_node,
                          optimisers_bring_their_defaults,
                          configs_differ_by_key_and_role,
                          copies_are_equal,
                          choice_names,
                          every_allocation_may_fail,
                          help_lists_every_key,
                          print_reports_a_full_disk};
  return harness_run("config", tests, HARNESS_COUNT(tests));
}
