/* SPDX-License-Identifier: Apache-2.0 */
/* A wire between threads of one process, in place of MPI: the ranks of a test. What is sent arrives late and in pieces of
 * time that a seed decides, though in order; a large message is not done before its receiver takes it. */
#pragma once

#include "group/wire.h"

/* The wires of `ranks` ranks; destroying the last of them frees all. */
void wire_threads_create(int ranks, unsigned seed, petra_wire **wires);
