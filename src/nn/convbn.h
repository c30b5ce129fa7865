/* One unit: convolution, batch norm, ReLU where the unit has one, joined to an addend. Arrays of parameters hold
 * (weight, scale, shift), of statistics (running mean, running variance), of gradients as the parameters. */
#ifndef PETRA_NN_CONVBN_H
#define PETRA_NN_CONVBN_H

#include "nn/graph.h"

/* y = join(addend, unit(x)), a new tensor, with the statistics of the batch; running statistics are not touched.
 * `graph` (NULL: no backward will follow) is filled; `addend` is NULL for PETRA_JOIN_NONE. */
petra_status petra_convbn_forward(const petra_compute *compute, const petra_unit *unit, petra_tensor *const *parameters,
                                  petra_tensor *x, petra_join join, const petra_tensor *addend, petra_unit_graph *graph,
                                  petra_tensor **y);

/* The same with the running statistics. */
petra_status petra_convbn_evaluate(const petra_compute *compute, const petra_unit *unit,
                                   petra_tensor *const *parameters, petra_tensor *const *statistics, petra_tensor *x,
                                   petra_join join, const petra_tensor *addend, petra_tensor **y);

/* Gradients of the parameters (overwritten) and of x (*dx, a new tensor; NULL: not wanted) from dy, the gradient of
 * unit(x). `relu` false leaves the ReLU out (its backward was done by the caller). `defer`: the filter's gradient is
 * left, and graph->dconv set for petra_convbn_filter_gradient. */
petra_status petra_convbn_backward(const petra_compute *compute, const petra_unit *unit, bool relu, bool defer,
                                   petra_tensor *const *parameters, petra_unit_graph *graph, const petra_tensor *dy,
                                   petra_tensor *const *gradients, petra_tensor **dx);

/* The filter's gradient (overwritten) that a backward left. */
petra_status petra_convbn_filter_gradient(const petra_compute *compute, const petra_unit *unit,
                                          const petra_unit_graph *graph, petra_tensor *gradient);

/* Moves the running statistics by the batch statistics of the graph; momentum 0.1, unbiased variance. */
petra_status petra_convbn_update_statistics(const petra_compute *compute, const petra_unit_graph *graph,
                                            petra_tensor *const *statistics);

#endif
