/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens from files: data.set: text and tokens (forms: token_set.c). Where the splits are:
 *   data.path, a folder (tokens)  train.bin; val.bin
 *   data.path, in HDF5 (tokens)   /train; /eval, which may be missing
 *   data.path, another file       with data.eval_share e the first floor(n (1 - e)) of its n tokens; the others
 * With data.eval_path all of data.path (of a folder train.bin) is the training split and all of that file the evaluation split. */
#pragma once

#include "data/dataset.h"

/* Open a split and check for the evaluation split. Tokens are checked when they are read. Errors: those of opening the
 * file and of petra_windows_init; PETRA_CONFIG: no path, no evaluation split, a vocabulary that is not given or not
 * that of the file. */
petra_status petra_token_set_open(const petra_config *config, petra_split split, petra_dataset **out);
petra_status petra_token_set_has_eval(const petra_config *config, bool *out);

/* Gets whether data.path is an HDF5 file. Errors: PETRA_IO. */
petra_status petra_token_set_in_hdf5(const petra_config *config, bool *out);

/* Gets the shape. For text nothing is read, for tokens the head of the training split's file. */
petra_status petra_token_set_shape(const petra_config *config, petra_dataset_shape *out);
