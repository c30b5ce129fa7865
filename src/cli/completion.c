/* SPDX-License-Identifier: Apache-2.0 */
/* The words that the completion of shells offers (scripts/completion). */
#include "cli/help.h"
#include "schedule/method.h"

#include <stdio.h>
#include <string.h>

/* "verify, convert or generate" */
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

/* Texts whose values are the names of another table. */
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
