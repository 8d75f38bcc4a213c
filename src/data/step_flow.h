/* Steps of a training whose rows are read while it trains (streaming: true). A thread reads, tokenizes and packs ahead
 * of the steps; step s is the units s G .. (s + 1) G - 1 of all windows (data/row_window.h), so every step is full:
 * the last rows of an epoch and the first of the next one share a step. Each process reads all rows and tokenizes
 * them, and its ranks take their parts of each step. Memory: the shuffle buffer, one window, and three steps.
 *
 * A place is the window of the first unit of a step, and how many of its units were taken: reading goes on there with
 * the bits of a run that was never interrupted. */
#ifndef TT_DATA_STEP_FLOW_H
#define TT_DATA_STEP_FLOW_H

#include "data/row_window.h"
#include "data/sampler.h"

struct tt_flow_state {
    struct tt_shuffle_place place; /* of a window */
    int64_t units;                 /* of it, that were taken */
};

struct tt_step_flow_config {
    struct tt_row_shuffle_config rows;
    struct tt_window_config window;
    struct tt_sampler_config sampler; /* without order and packing, which are the windows' */
};

struct tt_step_flow;
/* Lent to all feeds of a process. The thread starts with the first step that is asked for. */
TT_MUST_USE tt_status tt_step_flow_create(const struct tt_step_flow_config *config,
                                          struct tt_step_flow **out);
/* The first step that will be asked for, and the state that it comes behind. */
void tt_step_flow_start(struct tt_step_flow *flow, int64_t step, const struct tt_flow_state *state);
void tt_step_flow_destroy(struct tt_step_flow *flow); /* takes NULL; waits for the thread */
/* Waits for a step, which is the only one of *sampler, as step 0. It must be given back before the next one. Steps are
 * asked for one after the other, and the ranks of a process differ by at most one. *epoch: that of its first row. */
TT_MUST_USE tt_status tt_step_flow_take(struct tt_step_flow *flow, int64_t step,
                                        const struct tt_sampler **sampler, int64_t *epoch);
void tt_step_flow_give_back(struct tt_step_flow *flow, int64_t step);
/* The state behind `done` steps, the last of which was taken. */
TT_MUST_USE tt_status tt_step_flow_state(struct tt_step_flow *flow, int64_t done,
                                         struct tt_flow_state *state);
/* The largest micro batch that the settings allow, with samples of at most `max_length` tokens. */
struct tt_batch_limits tt_step_flow_limits(const struct tt_step_flow *flow, int64_t max_length);

#endif
