/* AdamW over the flat slices of one rank. Independent of model and rank: its input is a run of elements with or without
 * weight decay. State: m and v in fp32, in device memory of purpose OPTIMIZER; offloaded, in page-locked host memory
 * that the device reads and writes over its link during the update (each value once). */
#ifndef TT_OPTIM_ADAMW_H
#define TT_OPTIM_ADAMW_H

#include "backend/device.h"
#include "optim/config.h"

struct tt_adamw_state {
    struct tt_buffer *buffer; /* owned: m then v */
    float *m, *v;             /* [count] each */
    int64_t count;
};
/* A zeroed struct is empty; deinit takes it. */
TT_MUST_USE tt_status tt_adamw_state_init(struct tt_device *device, int64_t count, bool offload,
                                          struct tt_adamw_state *state);
void tt_adamw_state_deinit(struct tt_adamw_state *state);

struct tt_adamw_run {
    int64_t offset, count; /* of the slices */
    bool weight_decay;
};
struct tt_adamw_update {
    struct tt_adamw_state *state;
    float *master; /* [state->count], as grad */
    const float *grad;
    struct tt_adamw_run run;
    double lr;
    float grad_scale; /* the clipping coefficient */
    int64_t step;     /* from 1 */
};
TT_MUST_USE tt_status tt_adamw_update(struct tt_stream *stream, const struct tt_optim_config *config,
                                      const struct tt_adamw_update *update);

#endif
