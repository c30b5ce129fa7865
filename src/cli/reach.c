/* SPDX-License-Identifier: Apache-2.0 */
/* petra reach: when trained runs reach a loss, in updates, seconds and bytes, on any cluster. */
#include "cli/reach.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "setup/describe.h"
#include "record/training.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t DEFAULT_WINDOW = 20;

/* --- the arguments --- */

static petra_status read_real(const char *option, const char *text, double minimum, double maximum, double *out) {
  char *end;
  *out = strtod(text, &end);
  if (end == text || *end || !(*out >= minimum && *out <= maximum))
    return petra_fail(PETRA_USAGE, "--%s: '%s'; expected a number, %g .. %g", option, text, minimum, maximum);
  return PETRA_OK;
}

/* Bits a byte are nats a token if a token is a byte. */
static petra_status read_target(const petra_arguments *a, petra_reach_target *target) {
  double bits;
  if ((a->loss != NULL) + (a->top1 != NULL) + (a->bits != NULL) != 1)
    return petra_fail(PETRA_USAGE, "petra reach needs one target: --loss X, --top1 P or --bits B; see petra reach "
                                   "--help");
  if (a->top1) {
    target->quantity = PETRA_REACH_TOP1;
    return read_real("top1", a->top1, 0, 1, &target->value);
  }
  if (a->loss)
    return read_real("loss", a->loss, 0, 1e6, &target->value);
  PETRA_TRY(read_real("bits", a->bits, 0, 1e6, &bits));
  target->value = bits * M_LN2;
  return PETRA_OK;
}

static petra_status read_window(const petra_arguments *a, petra_reach_target *target) {
  char *end;
  target->window = DEFAULT_WINDOW;
  if (!a->window)
    return PETRA_OK;
  if (target->metric == PETRA_REACH_EVAL)
    return petra_fail(PETRA_USAGE, "--window with --metric eval, whose losses are not smoothed; expected one of them");
  errno = 0;
  target->window = strtoll(a->window, &end, 10);
  if (end == a->window || *end || errno || target->window < 1)
    return petra_fail(PETRA_USAGE, "--window: '%s'; expected a number of updates, at least 1", a->window);
  return PETRA_OK;
}

static petra_status read_options(const petra_arguments *a, petra_reach_options *out) {
  *out = (petra_reach_options){.places = a->inputs,
                               .place_count = a->input_count,
                               .on = a->on,
                               .on_count = a->on_count,
                               .as = a->as,
                               .over = a->over,
                               .compare_unlike = a->compare_unlike};
  for (int i = 0; i < a->on_count; i++)
    for (int other = 0; other < i; other++)
      if (strcmp(a->on[i], a->on[other]) == 0)
        return petra_fail(PETRA_USAGE, "--on %s was given twice; expected each cluster once", a->on[i]);
  if (a->metric && strcmp(a->metric, "train") != 0 && strcmp(a->metric, "eval") != 0)
    return petra_fail(PETRA_USAGE, "--metric: '%s'; expected train or eval", a->metric);
  if (a->metric && strcmp(a->metric, "eval") == 0)
    out->target.metric = PETRA_REACH_EVAL;
  PETRA_TRY(read_target(a, &out->target));
  return read_window(a, &out->target);
}

static petra_status check_bytes(const petra_reach *reach) {
  for (int i = 0; i < reach->groups.run_count; i++)
    if (reach->groups.runs[i].config->data.set != PETRA_SET_TEXT)
      return petra_fail(
          PETRA_USAGE,
          "--bits: %s is trained on data.set: %s, whose labels are not bytes; expected --loss, or runs on "
          "text",
          reach->groups.runs[i].log, petra_config_choice_name("data.set", (int)reach->groups.runs[i].config->data.set));
  return PETRA_OK;
}

/* --- sentences --- */

static const char bound_text[] = ">=: some seeds do not reach the target; each counts with its last value, so that the "
                                 "figure is a lower bound of the "
                                 "mean over these seeds; no interval: one would need the values that are missing";

const char petra_reach_interval_text[] =
    "means over seeds are geometric; in brackets: 95 % intervals, Student's t of the "
    "logarithms, for ratios Welch's; none if a seed does not reach the target";

const char petra_reach_as_text[] =
    "the updates are those of the small models that were trained; samples, seconds and bytes are those of this one";

void petra_reach_name(const petra_reach_cluster *cluster, char out[PETRA_REACH_SENTENCE]) {
  const char *on = cluster->place.on, *slash = on ? strrchr(on, '/') : NULL;
  snprintf(out, PETRA_REACH_SENTENCE, "%s", !on ? "own" : slash ? slash + 1 : on);
  char *dot = strrchr(out, '.');
  if (dot && dot != out)
    *dot = 0;
}

void petra_reach_target_text(const petra_reach *reach, char out[PETRA_REACH_SENTENCE]) {
  const petra_reach_target *target = &reach->options.target;
  const char *metric = target->metric == PETRA_REACH_EVAL ? "evaluation" : "training";
  if (target->quantity == PETRA_REACH_TOP1)
    snprintf(out, PETRA_REACH_SENTENCE, "%s top-1 at least %.6g %%", metric, 100 * target->value);
  else if (reach->groups.runs[0].config->data.set == PETRA_SET_TEXT)
    snprintf(out, PETRA_REACH_SENTENCE, "%s loss at most %.6g nats (%.6g bits a byte)", metric, target->value,
             target->value / M_LN2);
  else
    snprintf(out, PETRA_REACH_SENTENCE, "%s loss at most %.6g nats", metric, target->value);
}

void petra_reach_rule_text(const petra_reach *reach, char out[PETRA_REACH_SENTENCE]) {
  const petra_reach_target *target = &reach->options.target;
  if (target->metric == PETRA_REACH_EVAL)
    snprintf(out, PETRA_REACH_SENTENCE, "each evaluation, at the last loss of its epoch");
  else
    snprintf(out, PETRA_REACH_SENTENCE, "mean over the microbatches of the last %lld update%s, at its first microbatch",
             (long long)target->window, target->window == 1 ? "" : "s");
}

/* "24 % more updates than 1f1b (+18 .. +31 %)"; `than` may be "". */
static void compared(const petra_reach_ratio *r, const char *more, const char *less, const char *what, const char *than,
                     char *out, size_t size) {
  const bool grows = r->mean >= 1;
  const int length = snprintf(out, size, "%s%.3g %% %s %s%s%s",
                              !r->censored ? ""
                              : grows      ? "at least "
                                           : "at most ",
                              100 * fabs(r->mean - 1), grows ? more : less, what, *than ? " than " : "", than);
  if (!r->censored && !isnan(r->low) && length > 0 && (size_t)length < size)
    snprintf(out + length, size - (size_t)length, " (%+.3g .. %+.3g %%)", 100 * (r->low - 1), 100 * (r->high - 1));
}

void petra_reach_delay_text(const petra_reach *reach, const petra_reach_cluster *cluster, int group,
                            char out[PETRA_REACH_SENTENCE]) {
  const petra_reach_row *row = &cluster->rows[group];
  char updates[400], seconds[200];
  *out = 0;
  if (row->reference < 0 || !row->more_updates.known || !row->more_seconds.known)
    return;
  compared(&row->more_updates, "more", "fewer", "updates", reach->groups.groups[row->reference].label, updates,
           sizeof updates);
  compared(&row->more_seconds, "more", "less", "time", "", seconds, sizeof seconds);
  snprintf(out, PETRA_REACH_SENTENCE, "%.210s needs %s and takes %s", reach->groups.groups[group].label, updates,
           seconds);
}

static petra_status print_unlike(const void *context, FILE *out) {
  const petra_reach_view *view = context;
  const petra_reach_groups *groups = &view->reach->groups;
  const char **names;
  petra_plan_size *sizes = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&names, (size_t)groups->count, sizeof *names), done);
  PETRA_TRY_GOTO(status, petra_allocate(&sizes, (size_t)groups->count, sizeof *sizes), done);
  for (int g = 0; g < groups->count; g++) {
    names[g] = groups->groups[g].label;
    sizes[g] = groups->groups[g].size;
  }
  const char *samples = view->reach->options.as ? "trained samples" : "samples";
  const bool any = petra_describe_unlike(sizes, names, groups->count, samples, "", out);
  if (view->cluster->differs)
    fprintf(out, "%s%s", any ? "; " : "", view->cluster->differs);
done:
  petra_free(names);
  petra_free(sizes);
  return status;
}

static petra_status print_network(const void *context, FILE *out) {
  const petra_reach_view *view = context;
  const petra_reach_groups *groups = &view->reach->groups;
  const petra_reach_row *row = &view->cluster->rows[view->group];
  if (view->reach->options.as)
    petra_describe_network(row->config, out);
  else
    petra_describe_run_network(groups->runs[groups->groups[view->group].first].summary, row->config, out);
  if (row->size.vocabulary > 0)
    fprintf(out, ", vocabulary %d", row->size.vocabulary);
  const double parameters = (double)row->size.parameters;
  if (parameters >= 1e6)
    fprintf(out, ", %.4g %s parameters", parameters * (parameters < 1e9 ? 1e-6 : 1e-9),
            parameters < 1e9 ? "million" : "billion");
  else if (parameters > 0)
    fprintf(out, ", %.0f parameters", parameters);
  return PETRA_OK;
}

static petra_status print_costs(const void *context, FILE *out) {
  const petra_reach_view *view = context;
  return petra_describe_costs(view->cluster->rows[view->group].config, out);
}

static petra_status print_links(const void *context, FILE *out) {
  const petra_reach_view *view = context;
  petra_describe_links(view->cluster->rows[view->group].config, false, out);
  return PETRA_OK;
}

petra_status petra_reach_view_text(const petra_reach_view *view, petra_reach_words which, char **out) {
  static const petra_text_printer printers[] = {print_network, print_costs, print_links, print_unlike};
  size_t size;
  return petra_text_print(printers[which], view, "a description of a group", out, &size);
}

/* --- the tables --- */

enum { FIGURE = 32 };

/* Writes four digits, with an exponent only if the number is very large or small. */
static const char *figure(double value, char out[FIGURE]) {
  if (fabs(value) >= 1e4 && fabs(value) < 1e9)
    snprintf(out, FIGURE, "%.0f", value);
  else
    snprintf(out, FIGURE, "%.4g", value);
  return out;
}

/* Prints "1234 (1200 .. 1270)", or without an interval "1234"; ">= 1234" for a lower bound. */
static void mean_cell(petra_table *table, double mean, double low, double high, bool lower_bound) {
  char a[FIGURE], b[FIGURE], c[FIGURE];
  if (lower_bound)
    petra_table_cell(table, isnan(mean) ? "-" : ">= %s", figure(mean, a));
  else if (isnan(low))
    petra_table_cell(table, isnan(mean) ? "-" : "%s", figure(mean, a));
  else
    petra_table_cell(table, "%s (%s .. %s)", figure(mean, a), figure(low, b), figure(high, c));
}

static void estimate_cell(petra_table *table, const petra_reach_estimate *e, double scale, bool interval) {
  const bool bound = e->reached < e->count;
  mean_cell(table, scale * e->mean, interval ? scale * e->low : NAN, scale * e->high, bound);
}

static void integer_cell(petra_table *table, int64_t value) {
  petra_table_cell(table, value > 0 ? "%lld" : "-", (long long)value);
}

static void add_row(const petra_reach *reach, const petra_reach_cluster *cluster, int group, petra_table *table) {
  const petra_reach_row *row = &cluster->rows[group];
  char text[FIGURE];
  petra_table_cell(table, "%s", reach->groups.groups[group].label);
  integer_cell(table, row->size.devices);
  integer_cell(table, row->size.update_samples);
  petra_table_cell(table, "%d of %d", row->seconds.reached, row->seconds.count);
  if (row->seconds.reached == 0) {
    petra_table_cell(table, "not reached");
    petra_table_cell(table, "-");
    petra_table_cell(table, "> %s", figure(row->seconds.low, text));
    petra_table_cell(table, "-");
    petra_table_cell(table, "-");
    return;
  }
  estimate_cell(table, &row->updates, 1, true);
  estimate_cell(table, &row->samples, (double)petra_sample_labels(row->config), false);
  estimate_cell(table, &row->seconds, 1, true);
  estimate_cell(table, &row->bytes, 1e-9, false);
  if (group == cluster->best)
    petra_table_cell(table, "1");
  else if (row->to_best.known)
    mean_cell(table, row->to_best.mean, row->to_best.low, row->to_best.high, row->to_best.censored);
  else
    petra_table_cell(table, "-");
}

/* Returns true if `a` comes before `b` in the table: those that are reached by all seeds, by fewer, by none; of these
 * by seconds. */
static bool comes_before(const petra_reach_row *a, const petra_reach_row *b) {
  const int left = a->seconds.reached == a->seconds.count ? 0
                   : a->seconds.reached > 0               ? 1
                                                          : 2,
            right = b->seconds.reached == b->seconds.count ? 0
                    : b->seconds.reached > 0               ? 1
                                                           : 2;
  return left != right ? left < right : a->seconds.mean < b->seconds.mean;
}

static void sort(const petra_reach_cluster *cluster, int *order, int count) {
  for (int i = 0; i < count; i++) {
    int j = i;
    for (; j > 0 && comes_before(&cluster->rows[i], &cluster->rows[order[j - 1]]); j--)
      order[j] = order[j - 1];
    order[j] = i;
  }
}

static petra_status print_rows(const petra_reach *reach, const petra_reach_cluster *cluster) {
  const petra_table_column columns[] = {{"group", PETRA_TABLE_LEFT},
                                        {"devices", PETRA_TABLE_RIGHT},
                                        {"samples / update", PETRA_TABLE_RIGHT},
                                        {"reached", PETRA_TABLE_RIGHT},
                                        {"updates", PETRA_TABLE_RIGHT},
                                        {petra_sample_words_of(reach->samples)->labels, PETRA_TABLE_RIGHT},
                                        {"seconds", PETRA_TABLE_RIGHT},
                                        {"GB sent", PETRA_TABLE_RIGHT},
                                        {"seconds / best", PETRA_TABLE_RIGHT}};
  petra_table *table;
  int *order;
  PETRA_TRY(petra_table_create(columns, sizeof columns / sizeof *columns, &table));
  PETRA_TRY(petra_allocate(&order, (size_t)reach->groups.count, sizeof *order));
  sort(cluster, order, reach->groups.count);
  for (int i = 0; i < reach->groups.count; i++)
    add_row(reach, cluster, order[i], table);
  petra_free(order);
  return petra_table_print(table, stdout);
}

/* Prints one line if all groups have the same text, else a line for each group. */
static petra_status print_description(const petra_reach *reach, const petra_reach_cluster *cluster, const char *word,
                                      petra_reach_words which) {
  const int groups = reach->groups.count;
  char **texts;
  bool equal = true;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&texts, (size_t)groups, sizeof *texts));
  for (int g = 0; g < groups && status == PETRA_OK; g++) {
    status = petra_reach_view_text(&(petra_reach_view){reach, cluster, g}, which, &texts[g]);
    equal = equal && status == PETRA_OK && strcmp(texts[0], texts[g]) == 0;
  }
  for (int g = 0; g < (equal ? 1 : groups) && status == PETRA_OK; g++) {
    printf("%-9s", g == 0 ? word : "");
    if (!equal)
      petra_utf8_print(stdout, "%s: ", reach->groups.groups[g].label);
    petra_utf8_print(stdout, "%s\n", texts[g]);
  }
  for (int g = 0; g < groups; g++)
    petra_free(texts[g]);
  petra_free(texts);
  return status;
}

/* Names the groups that are not alike. */
static petra_status print_unlike_line(const petra_reach *reach, const petra_reach_cluster *cluster) {
  char *text;
  PETRA_TRY(petra_reach_view_text(&(petra_reach_view){reach, cluster, 0}, PETRA_REACH_UNLIKE, &text));
  if (*text)
    petra_utf8_print(stdout, "unlike   %s%s\n", text,
                     reach->options.compare_unlike ? "" : "; no ratios of unlike groups without --compare-unlike");
  petra_free(text);
  return PETRA_OK;
}

/* Says how near each group comes of which a run does not reach the target. */
static void print_lowest(const petra_reach *reach, const petra_reach_cluster *cluster) {
  const petra_reach_target *target = &reach->options.target;
  const bool top1 = target->quantity == PETRA_REACH_TOP1;
  for (int g = 0; g < reach->groups.count; g++) {
    const petra_reach_row *row = &cluster->rows[g];
    const petra_reach_end *nearest = NULL;
    char updates[FIGURE], seconds[FIGURE];
    for (int i = 0; i < row->seconds.count; i++)
      if (!row->ends[i].reached &&
          (!nearest || (top1 ? row->ends[i].lowest > nearest->lowest : row->ends[i].lowest < nearest->lowest)))
        nearest = &row->ends[i];
    if (!nearest)
      continue;
    const petra_reach_run *run = &reach->groups.runs[reach->groups.groups[g].first + (nearest - row->ends)];
    petra_utf8_print(stdout, "not reached: %s: the %s %s is %.5g%s, after %s updates and ",
                     reach->groups.groups[g].label,
                     top1                                 ? "highest"
                     : target->metric == PETRA_REACH_EVAL ? "lowest"
                                                          : "lowest smoothed",
                     top1 ? "accuracy" : "loss", (top1 ? 100 : 1) * nearest->lowest, top1 ? " %" : " nats",
                     figure((double)nearest->lowest_updates, updates));
    printf("%s s (seed %lld", figure(nearest->lowest_seconds, seconds), (long long)run->config->run.seed);
    if (row->seconds.count - row->seconds.reached > 1)
      printf(", the nearest of %d seeds that do not reach it", row->seconds.count - row->seconds.reached);
    puts(")");
  }
}

static petra_status print_cluster(const petra_reach *reach, const petra_reach_cluster *cluster) {
  char text[PETRA_REACH_SENTENCE];
  petra_reach_name(cluster, text);
  fputs("\ncluster  ", stdout);
  if (cluster->place.on)
    petra_utf8_print(stdout, "%s", text);
  else
    fputs(cluster->place.as ? "the runs' own" : "the runs' own, seconds of their logs", stdout);
  putchar('\n');
  PETRA_TRY(print_description(reach, cluster, "costs", PETRA_REACH_COSTS));
  PETRA_TRY(print_description(reach, cluster, "links", PETRA_REACH_LINKS));
  PETRA_TRY(print_unlike_line(reach, cluster));
  putchar('\n');
  PETRA_TRY(print_rows(reach, cluster));
  print_lowest(reach, cluster);
  for (int g = 0; g < reach->groups.count; g++) {
    petra_reach_delay_text(reach, cluster, g, text);
    if (*text)
      petra_utf8_print(stdout, "delay: %s\n", text);
  }
  return PETRA_OK;
}

/* --- the curve over a key --- */

static petra_status print_curve(const petra_reach *reach, const petra_reach_over *over) {
  petra_table_column *columns;
  petra_table *table;
  PETRA_TRY(petra_allocate(&columns, (size_t)reach->groups.count + 1, sizeof *columns));
  columns[0] = (petra_table_column){strrchr(over->key, '.') + 1, PETRA_TABLE_RIGHT};
  for (int g = 0; g < reach->groups.count; g++)
    columns[g + 1] = (petra_table_column){reach->groups.groups[g].label, PETRA_TABLE_RIGHT};
  petra_status status = petra_table_create(columns, reach->groups.count + 1, &table);
  for (int i = 0; status == PETRA_OK && i < over->count; i++) {
    petra_table_cell(table, "%.4g", over->values[i]);
    for (int g = 0; g < reach->groups.count; g++) {
      const double seconds = over->seconds[g * over->count + i];
      petra_table_cell(table, isnan(seconds) ? "-" : "%.4g", seconds);
    }
  }
  if (status == PETRA_OK)
    status = petra_table_print(table, stdout);
  petra_free(columns);
  return status;
}

/* Returns true if all seeds of some group reach the target. */
static bool has_curve(const petra_reach *reach, const petra_reach_over *over) {
  for (int g = 0; g < reach->groups.count; g++)
    if (!isnan(over->seconds[g * over->count]))
      return true;
  return false;
}

/* Returns true if the seconds of some group are not the same at all values. */
static bool has_effect(const petra_reach *reach, const petra_reach_over *over) {
  for (int g = 0; g < reach->groups.count; g++)
    for (int i = 1; i < over->count; i++)
      if (!isnan(over->seconds[g * over->count]) &&
          over->seconds[g * over->count + i] != over->seconds[g * over->count])
        return true;
  return false;
}

static petra_status print_over(const petra_reach *reach, const petra_reach_over *over,
                               const petra_reach_cluster *cluster) {
  char name[PETRA_REACH_SENTENCE];
  petra_reach_name(cluster, name);
  putchar('\n');
  petra_utf8_print(stdout, "seconds over %s, cluster %s", over->key, name);
  putchar('\n');
  PETRA_TRY(print_unlike_line(reach, cluster));
  putchar('\n');
  if (!has_curve(reach, over)) {
    puts("no group reaches the target with every seed");
    return PETRA_OK;
  }
  PETRA_TRY(print_curve(reach, over));
  if (!has_effect(reach, over)) {
    printf("note: %s has no effect on the seconds of any group here\n", over->key);
    return PETRA_OK;
  }
  for (int c = 0; c < over->change_count; c++) {
    const petra_reach_change *change = &over->changes[c];
    const char *before = reach->groups.groups[change->before].label, *after = reach->groups.groups[change->after].label;
    if (change->kind == PETRA_REACH_BEST_CHANGES)
      petra_utf8_print(stdout, "the best changes at %.4g: %s is the best below, %s above\n", change->value, before,
                       after);
    else
      petra_utf8_print(stdout, "break-even at %.4g: %s is faster than %s below, and slower above\n", change->value,
                       before, after);
  }
  if (over->change_count == 0)
    printf("the order of the best, and of each group and its reference, does not change in this range\n");
  return PETRA_OK;
}

/* Returns true if a group reaches the target with some of its seeds. */
static bool has_bounds(const petra_reach *reach) {
  for (int g = 0; g < reach->groups.count; g++) {
    const petra_reach_estimate *seconds = &reach->clusters[0].rows[g].seconds;
    if (seconds->reached > 0 && seconds->reached < seconds->count)
      return true;
  }
  return false;
}

/* A target that the first point of a curve meets may have been met before it. */
static void print_first_points(const petra_reach *reach) {
  const bool evaluates = reach->options.target.metric == PETRA_REACH_EVAL;
  for (int g = 0; g < reach->groups.count; g++) {
    const petra_reach_group *group = &reach->groups.groups[g];
    int count = 0;
    for (int i = group->first; i < group->first + group->count; i++)
      count += reach->groups.runs[i].curve.crossing == reach->groups.runs[i].curve.points[0].row;
    if (count > 0)
      petra_utf8_print(stdout, "note: %s reaches the target %s (%d of %d seeds); the figures are those of this %s\n",
                       group->label, evaluates ? "at the first evaluation" : "within the first window", count,
                       group->count, evaluates ? "evaluation" : "window");
  }
}

/* Runs of one group may differ in what their logs do not say. */
static void print_untold(const petra_reach *reach) {
  int count = 0;
  for (int i = 0; i < reach->groups.run_count; i++)
    count += petra_training_is_missing(reach->groups.runs[i].summary);
  if (count > 0)
    printf(
        "note: %d of %d logs do not record their optimisers in full (an earlier version wrote them), so that the runs "
        "of a group may be different trainings\n",
        count, reach->groups.run_count);
}

static petra_status print(const petra_reach *reach) {
  char target[PETRA_REACH_SENTENCE], rule[PETRA_REACH_SENTENCE];
  petra_reach_target_text(reach, target);
  petra_reach_rule_text(reach, rule);
  printf("target   %s\nrule     %s\nruns     %d in %d group%s\n", target, rule, reach->groups.run_count,
         reach->groups.count, reach->groups.count == 1 ? "" : "s");
  if (reach->options.as)
    petra_utf8_print(stdout, "model    %s: %s\n", reach->options.as, petra_reach_as_text);
  PETRA_TRY(print_description(reach, &reach->clusters[0], "network", PETRA_REACH_NETWORK));
  for (int i = 0; i < reach->cluster_count; i++)
    PETRA_TRY(print_cluster(reach, &reach->clusters[i]));
  for (int i = 0; reach->over && i < reach->cluster_count; i++)
    PETRA_TRY(print_over(reach, &reach->over[i], &reach->clusters[i]));
  printf("\n%s\n", petra_reach_interval_text);
  if (has_bounds(reach))
    puts(bound_text);
  print_first_points(reach);
  print_untold(reach);
  return PETRA_OK;
}

static petra_status run(const petra_arguments *arguments) {
  petra_reach_options options;
  petra_reach *reach;
  PETRA_TRY(read_options(arguments, &options));
  PETRA_TRY(petra_reach_create(&options, &reach));
  petra_status status = arguments->bits ? check_bytes(reach) : PETRA_OK;
  if (status == PETRA_OK)
    status = arguments->json ? petra_reach_print_json(reach) : print(reach);
  petra_reach_destroy(reach);
  return status;
}

const petra_command petra_command_reach = {
    .name = "reach",
    .summary = "prints when runs reach a loss: updates, seconds and bytes, on any cluster",
    .arguments = "RUN|SWEEP... --loss X|--top1 P|--bits B [--on CLUSTER.yaml]... [--as MODEL.yaml] [--over "
                 "KEY[=FROM:TO]] [--json]",
    .help =
        "Reads the losses of trained runs (folders or their run.h5) and of sweeps (folders; their complete cells), "
        "and\n"
        "prints when they reach a target: the number of updates, of images or tokens, the seconds of the virtual\n"
        "clock, and the bytes that devices have sent each other by then. Runs whose configs differ only in run.seed\n"
        "are one group.\n"
        "\n"
        "The rule: losses are smoothed by a trailing mean over the microbatches of the last updates (--window). The\n"
        "target is reached at the first microbatch at which the mean of a whole window is at most X, or the accuracy\n"
        "at least P. Updates are those that are complete before this microbatch. Its time is when the last stage\n"
        "begins to compute its loss. All runs must be trained on the same data.\n"
        "\n"
        "Without --on the seconds are those of the logs. --on replays each run's schedule on the cluster of a file,\n"
        "without data and without training: the keys of the section cluster that the file sets replace those of the\n"
        "run. Keys of processes have no effect; cluster.stages, and cluster.replicas other than that of the run, are\n"
        "errors. A method by arrival has no order, and works only without --on.\n"
        "\n"
        "--as replaces the model, the batch and the partition of the runs in this simulation by those of another\n"
        "config, with the same number of stages: the updates are those of the small training; seconds, tokens and\n"
        "bytes are those of the large model. Keys that the file does not set keep the values of the run.\n"
        "\n"
        "Means over seeds are geometric, with 95 % intervals: Student's t of the logarithms; for ratios Welch's. A\n"
        "seed that does not reach the target counts with its last value. The figure is then a lower bound (>=) of the\n"
        "mean over these seeds, without an interval.\n"
        "Each group with delayed gradients is compared with the fastest group whose gradients are end-to-end and\n"
        "not delayed, of the same optimiser if there is one: how many more updates it needs, and how much time it\n"
        "takes. Ratios are those of groups with the same number of devices and of samples per update on the same\n"
        "cluster; a line above the table names groups that are not alike. --compare-unlike prints all ratios.",
    .inputs_min = 1,
    .inputs_max = PETRA_MAX_INPUTS,
    .options =
        (const petra_option[]){
            PETRA_OPTION_ONCE("loss", "X", loss, "the target: a loss in nats"),
            PETRA_OPTION_ONCE("top1", "P", top1, "the target: a top-1 accuracy, 0 .. 1"),
            PETRA_OPTION_ONCE("bits", "B", bits, "the target: a loss in bits a byte, for data.set: text"),
            PETRA_OPTION_ONCE(
                "metric", "train|eval", metric,
                "the loss that counts: that of the training (the default), or that of the evaluations, which "
                "are not smoothed"),
            PETRA_OPTION_ONCE("window", "W", window,
                              "number of updates over which the loss is averaged; the default is 20"),
            PETRA_OPTION_REPEATED("on", "FILE", on, on_count, PETRA_MAX_CLUSTERS,
                                  "a config with a cluster on which the runs are simulated; may be repeated"),
            PETRA_OPTION_ONCE("as", "FILE", as,
                              "a config with a model that replaces those of the runs in the simulation"),
            PETRA_OPTION(
                "compare-unlike", NULL, compare_unlike,
                "also prints ratios of groups that differ in devices, in samples per update or in the cluster"),
            PETRA_OPTION_ONCE(
                "over", "KEY[=FROM:TO]", over,
                "also prints the seconds over a number of the section cluster, such as "
                "cluster.link.bandwidth_Bps, and the values at which the order changes; without a range from "
                "a hundredth to a hundred times its value"),
            {0}},
    .run = run};
