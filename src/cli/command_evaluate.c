/* SPDX-License-Identifier: Apache-2.0 */
/* petra evaluate: accuracy of weights on the evaluation set. */
#include "base/json.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "exec/evaluation.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* Also prints the loss of tokens in the form that is usual in the field. */
static void print_of_tokens(const petra_config *config, double loss) {
  printf(", perplexity %.3f, %.4f bits a %s", exp(loss), loss / M_LN2,
         config->data.set == PETRA_SET_TEXT ? "byte" : "token");
}

static void print_text(const petra_config *config, const petra_weights_moment *moment, const petra_evaluation *result) {
  const petra_sample_kind samples = petra_sample_kind_of(config);
  char epoch[64] = "";
  if (moment->epoch > 0)
    snprintf(epoch, sizeof epoch, " (epoch %d, the best of its run)", moment->epoch);
  petra_utf8_print(stdout, "%s%s: %lld %s, loss %.4f, top-1 %.2f %%, top-5 %.2f %%", config->model.weights, epoch,
                   (long long)result->images, petra_sample_words_of(samples)->labels, result->loss, 100 * result->top1,
                   100 * result->top5);
  if (samples == PETRA_SAMPLE_TOKENS)
    print_of_tokens(config, result->loss);
  putchar('\n');
  if (config->data.recalibrate > 0)
    printf("with batch-norm statistics from %lld training microbatches: loss %.4f, top-1 %.2f %%, top-5 %.2f %%\n",
           (long long)config->data.recalibrate, result->recalibrated.loss, 100 * result->recalibrated.top1,
           100 * result->recalibrated.top5);
}

static petra_status print_json(const petra_config *config, const petra_weights_moment *moment,
                               const petra_evaluation *result) {
  const petra_sample_kind samples = petra_sample_kind_of(config);
  json_t *object =
      json_pack("{s:o, s:I, s:o, s:o, s:o, s:o}", "weights", petra_json_string(config->model.weights),
                petra_sample_words_of(samples)->labels, (json_int_t)result->images, "loss",
                petra_json_real(result->loss), "top1", petra_json_real(result->top1), "top5",
                petra_json_real(result->top5), "epoch", moment->epoch > 0 ? json_integer(moment->epoch) : json_null());
  if (samples == PETRA_SAMPLE_TOKENS) {
    petra_json_set(&object, "perplexity", petra_json_real(exp(result->loss)));
    petra_json_set(&object, "bits_per_token", petra_json_real(result->loss / M_LN2));
  }
  if (config->data.recalibrate > 0) {
    petra_json_set(&object, "loss_recalibrated", petra_json_real(result->recalibrated.loss));
    petra_json_set(&object, "top1_recalibrated", petra_json_real(result->recalibrated.top1));
    petra_json_set(&object, "top5_recalibrated", petra_json_real(result->recalibrated.top5));
  }
  return petra_json_print_new(object);
}

PETRA_DESTROYS(petra_dataset_destroy, petra_dataset)

static petra_status run(const petra_arguments *arguments) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_FINISHED(petra_plan_fini) petra_plan plan = {0};
  PETRA_FINISHED(petra_network_fini) petra_network network = {0};
  PETRA_DESTROYED(petra_dataset_destroy) petra_dataset *set = NULL, *train = NULL;
  petra_evaluation result;
  petra_weights_moment moment;
  PETRA_TRY(petra_arguments_config(arguments, "evaluate", &config));
  if (!*config->model.weights)
    return petra_config_fail(
        config, "model.weights",
        "petra evaluate needs a weights file; expected for instance --set model.weights=runs/demo/weights.h5");
  if (config->model.new_head)
    return petra_config_fail(
        config, "model.new_head",
        "true would evaluate a head of random weights; expected false, which reads the head of model.weights");
  PETRA_TRY(petra_plan_init(&plan, config));
  PETRA_TRY(petra_dataset_open(config, PETRA_SPLIT_EVAL, &set));
  PETRA_TRY(petra_plan_check_data(&plan, set));
  if (config->data.recalibrate > 0) {
    PETRA_TRY(petra_plan_check_norms(&plan));
    PETRA_TRY(petra_dataset_open(config, PETRA_SPLIT_TRAIN, &train));
    PETRA_TRY(petra_plan_check_data(&plan, train));
  }
  PETRA_TRY(petra_network_open(&network, &plan, NULL, 0, NULL));
  PETRA_TRY(petra_network_initialise(&network));
  PETRA_TRY(petra_network_evaluate(&network, set, train, &result));
  PETRA_TRY(petra_weights_read_moment(config->model.weights, &moment));
  if (arguments->json)
    return print_json(config, &moment, &result);
  print_text(config, &moment, &result);
  return PETRA_OK;
}

const petra_command petra_command_evaluate = {
    .name = "evaluate",
    .summary = "evaluates weights on the evaluation set",
    .arguments = "CONFIG.yaml --set model.weights=FILE [--set KEY=VALUE]... [--json]",
    .help = "Evaluates the weights of model.weights on the evaluation split of the data set, with the running\n"
            "statistics of batch norm. Prints loss, top-1 and top-5 accuracy; for tokens also perplexity and bits per\n"
            "token. A partial last batch is weighted by its number of samples. If run.keep: best wrote the weights,\n"
            "their epoch is printed too.\n"
            "\n"
            "With data.recalibrate, the evaluation is repeated with batch-norm statistics that are estimated from\n"
            "that many training microbatches.",
    .takes_config = true,
    .run = run};
