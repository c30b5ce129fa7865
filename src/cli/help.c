/* SPDX-License-Identifier: Apache-2.0 */
/* The help of a subcommand, its manual page and its completion from the same table; and the named devices, links and
 * optimisers. */
#include "cli/command.h"

#include "config/link_presets.h"
#include "config/optimiser.h"
#include "base/version.h"
#include "schedule/method.h"
#include "sim/roofline.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

void petra_help_print(const petra_command *command, const petra_option *const *options, int count) {
  printf("usage: petra %s%s%s\n\n%s\noptions:\n", command->name, *command->arguments ? " " : "", command->arguments,
         command->help);
  for (int i = 0; i < count; i++) {
    char name[48];
    snprintf(name, sizeof name, "%s%s%s", options[i]->name, options[i]->value ? " " : "",
             options[i]->value ? options[i]->value : "");
    if (options[i]->help)
      printf("  --%-13s  %s\n", name, options[i]->help);
  }
}

/* --- the manual --- */

/* Prints a text for man(7): `code` in bold, also over lines; options with minus signs, so that they can be copied into
 * a shell; runs of blanks and line breaks as one blank. */
static void print_text(const char *text, size_t length, bool *in_code) {
  bool bold = *in_code;
  for (size_t i = 0; i < length; i++) {
    const bool begins = i == 0 || strchr(" \n(`'[-", text[i - 1]);
    if (text[i] == '`') {
      bold = !bold;
      fputs(bold ? "\\fB" : "\\fR", stdout);
    } else if (isspace((unsigned char)text[i])) {
      if (i == 0 || !isspace((unsigned char)text[i - 1]))
        putchar(' ');
    } else if (text[i] == '\\') {
      fputs("\\e", stdout);
    } else if (text[i] == '-' && (begins || bold) && i + 1 < length && text[i + 1] != ' ') {
      fputs("\\-", stdout);
    } else {
      if (i == 0 && strchr(".'", text[i]))
        fputs("\\&", stdout);
      putchar(text[i]);
    }
  }
  *in_code = bold;
}

static void print_line(const char *text) {
  print_text(text, strlen(text), &(bool){false});
  putchar('\n');
}

/* Returns the length of the word at the start of a line that two blanks or more separate from its description; 0: there
 * is none. */
static size_t tag_length(const char *line, size_t length) {
  size_t word = strcspn(line, " \n");
  return word > 0 && word + 2 < length && line[word] == ' ' && line[word + 1] == ' ' ? word : 0;
}

/* Prints a help: paragraphs are separated by an empty line. Indented lines are printed as they are. A line that begins
 * with a separated word begins a list item, which continues in lines that are indented as far as its text; if it begins
 * with an option, it is a paragraph. */
static void print_paragraphs(const char *help) {
  size_t indent = 0; /* indentation of an item's text; 0: not in an item */
  bool shown = false, in_code = false;
  for (const char *line = help; *line;) {
    const size_t length = strcspn(line, "\n"), blanks = strspn(line, " "), tag = tag_length(line, length);
    const bool goes_on = indent > 0 && blanks == indent, shows = blanks > 0 && !goes_on;
    if (shows != shown)
      puts(shows ? ".PP\n.RS 4\n.nf" : ".fi\n.RE\n.PP");
    shown = shows;
    if (length == 0) {
      puts(".PP");
    } else if (tag > 0) {
      indent = tag + strspn(line + tag, " ");
      printf(".TP\n.B %.*s\n", (int)tag, line);
      print_text(line + indent, length - indent, &in_code);
      putchar('\n');
    } else {
      if ((indent > 0 && !goes_on && !shows) || strncmp(line, "--", 2) == 0) {
        puts(".PP");
        indent = 0;
      }
      if (shows)
        printf("%.*s", (int)(length - blanks), line + blanks);
      else
        print_text(line + blanks, length - blanks, &in_code);
      putchar('\n');
    }
    line += length + (line[length] == '\n');
  }
  if (shown)
    puts(".fi\n.RE");
}

/* Prints "CONFIG.yaml [--set KEY=VALUE]...": literal text in bold, placeholders in italics. */
static void print_synopsis(const char *text) {
  while (*text) {
    const size_t word = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
    const bool dots = strncmp(text, "...", 3) == 0;
    if (word == 0 || dots) {
      printf("%.*s", dots ? 3 : 1, text);
      text += dots ? 3 : 1;
      continue;
    }
    fputs(isupper((unsigned char)*text) ? "\\fI" : "\\fB", stdout);
    for (size_t i = 0; i < word; i++)
      fputs(text[i] == '-' ? "\\-" : (char[]){text[i], 0}, stdout);
    fputs("\\fR", stdout);
    text += word;
  }
  putchar('\n');
}

static void print_option(const petra_option *option) {
  printf(".TP\n\\fB\\-\\-");
  print_text(option->name, strlen(option->name), &(bool){true});
  fputs("\\fR ", stdout);
  print_synopsis(option->value ? option->value : "");
  print_line(option->help);
  if (option->more) {
    puts(".br");
    print_line(option->more);
  }
}

static void print_upper(const char *text) {
  for (; *text; text++)
    putchar(toupper((unsigned char)*text));
}

void petra_manual_print(const petra_command *command, const petra_option *const *options, int count) {
  fputs(".TH PETRA-", stdout);
  print_upper(command->name);
  printf(" 1 \"\" \"petra %s\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\npetra-%s \\- ", petra_version(), command->name);
  print_line(command->summary);
  printf(".SH SYNOPSIS\n\\fBpetra %s\\fR ", command->name);
  print_synopsis(command->arguments);
  puts(".SH DESCRIPTION");
  print_paragraphs(command->help);
  puts(".SH OPTIONS");
  for (int i = 0; i < count; i++)
    if (options[i]->help)
      print_option(options[i]);
  puts(".SH SEE ALSO\n.BR petra (1),\nwhich has the files of a run, the exit status and examples.");
}

/* --- the words that the completion of shells offers (scripts/completion) --- */
/* Prints the actions of "verify, convert or generate". */
static void print_actions(const petra_command *command) {
  for (const char *text = command->actions; *text;) {
    const size_t word = strcspn(text, ", ");
    if (word > 0 && !(word == 2 && strncmp(text, "or", 2) == 0))
      printf("action %.*s %s\n", (int)word, text, command->name);
    text += word + strspn(text + word, ", ");
  }
}

void petra_completion_print(const petra_command *command, const petra_option *const *options, int count) {
  printf("command %s %s\n", command->name, command->summary);
  if (command->actions)
    print_actions(command);
  for (int i = 0; i < count; i++)
    if (options[i]->help)
      printf("option --%s %s%s%s\n", options[i]->name, command->name, options[i]->value ? " " : "",
             options[i]->value ? options[i]->value : "");
}

/* Prints the values of string keys that are names from another table. */
static bool print_names(FILE *out, const char *path) {
  const bool programs = strcmp(path, "method.program") == 0;
  if (!programs && strcmp(path, "method.name") != 0)
    return false;
  if (programs)
    fputs(" preset", out);
  for (int i = 0; i < (programs ? petra_program_count() : petra_method_count()); i++)
    fprintf(out, " %s", programs ? petra_program_get(i)->name : petra_method_get(i).name);
  return true;
}

void petra_completion_print_keys(void) {
  petra_config_help_words(stdout, print_names);
}

/* Prints the peak of convolutions and products; "-": the device has no units for it. */
static void print_peak(FILE *out, double flops) {
  if (flops > 0)
    fprintf(out, " %g |", 1e-12 * flops);
  else
    fputs(" - |", out);
}

static void print_optimisers(FILE *out) {
  fputs("\n`optim.name`: the keys of each optimiser with their defaults. Every optimiser also has `optim.lr`,\n"
        "`optim.decay_norm_and_bias` and `optim.clip`.\n\n| optimiser | keys |\n|---|---|\n",
        out);
  for (int i = 0; petra_optimiser_names[i]; i++) {
    const char *separator = " ";
    fprintf(out, "| %s |", petra_optimiser_names[i]);
    for (const petra_optimiser_key *key = petra_optimiser_of((petra_optimiser_kind)i)->keys; key->path; key++) {
      fprintf(out, "%s`%s: %s`", separator, key->path + strlen("optim."), key->default_value);
      separator = ", ";
    }
    fputs(" |\n", out);
  }
}

void petra_presets_print(bool markdown, FILE *out) {
  const petra_device_peaks *device;
  fputs(markdown ? "\n## Devices, links and optimisers by name\n\n" : "\nDevices, links and optimisers by name.\n\n",
        out);
  fputs("`cluster.cost.device`: peak rates of convolutions and matrix products in TFLOP/s for each\n"
        "`cluster.cost.arithmetic`, and peak memory bandwidth in GB/s.\n\n"
        "| device | fp32 | tf32 | bf16 | memory | source |\n|---|---|---|---|---|---|\n",
        out);
  for (int d = 0; (device = petra_device_peaks_at(d)); d++) {
    fprintf(out, "| %s |", device->name);
    for (int a = 0; a < PETRA_COST_ARITHMETICS; a++)
      print_peak(out, device->matrix_flops[a]);
    fprintf(out, " %g | %s |\n", 1e-9 * device->bandwidth_Bps, device->source);
  }
  fputs("\n`cluster.link.preset`: rates per direction.\n\n"
        "| link | `bandwidth_Bps` | source | `latency_s` | source |\n|---|---|---|---|---|\n",
        out);
  for (int p = 1; p < petra_link_preset_count(); p++) { /* 0: none */
    const petra_link_preset *link = petra_link_preset_of(p);
    fprintf(out, "| %s | %g | %s | %g | %s |\n", link->name, link->bandwidth_Bps, link->bandwidth_source,
            link->latency_s, link->latency_source);
  }
  print_optimisers(out);
}
