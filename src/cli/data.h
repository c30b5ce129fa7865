/* The actions of `petra data`, and what they share. */
#ifndef PETRA_CLI_DATA_H
#define PETRA_CLI_DATA_H

#include "cli/command.h"
#include "data/dataset.h"

/* Reads every record of the split and reports; PETRA_DATA if there was anything wrong, each logged with a
 * line. */
petra_status petra_data_verify(const petra_arguments *arguments, const petra_config *config);

/* Writes the data set of the config as an HDF5 file to --output. */
petra_status petra_data_convert(const petra_arguments *arguments, const petra_config *config);

/* A run of records, as read takes them: pixels (count, 3, H, W), labels, and what became of each. */
typedef struct petra_data_records {
  const petra_dataset *set;
  int64_t room; /* most records */
  uint8_t *pixels;
  int32_t *labels;
  petra_status *statuses;
  int64_t first, count;
} petra_data_records;

/* Room for some records, 32 MB at most or one. */
petra_status petra_data_records_init(petra_data_records *records, const petra_dataset *set);

/* Reads the records behind those read last, on `threads` threads; count 0 at the end. Each failure is in
 * `statuses` and was logged by the one that met it; PETRA_NO_MEMORY and PETRA_INTERNAL are returned. */
petra_status petra_data_records_next(petra_data_records *records, int threads);

void petra_data_records_fini(petra_data_records *records);

/* "train", "eval" */
const char *petra_split_name(petra_split split);

#endif
