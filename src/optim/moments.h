/* The optimizer's state of one rank's slices, in device memory of purpose OPTIMIZER; offloaded, in page-locked host
 * memory that the device reads and writes over its link during the update (each value once). */
#ifndef TT_OPTIM_MOMENTS_H
#define TT_OPTIM_MOMENTS_H

#include "optim/optimizer.h"

/* The part of a parameter in the slices. */
struct tt_moments_run {
    const tt_param *param;
    int64_t offset, count;      /* elements of the slices */
    bool coded, whole;          /* set by tt_moments_init, as: */
    int64_t at[TT_MOMENTS_MAX]; /* its first element among all fp32 values, or all codes, of a moment */
};

struct tt_moments {
    struct tt_buffer *buffer;      /* owned: all arrays; NULL: there are none */
    float *values[TT_MOMENTS_MAX]; /* of runs with 32 bits */
    uint8_t *codes[TT_MOMENTS_MAX];
    float *absmax[TT_MOMENTS_MAX]; /* one for each TT_MOMENT_BLOCK codes */
    size_t bytes;
    struct tt_moments_run *runs; /* owned; in order of offset */
    size_t run_count;
    int64_t count; /* of the slices */
};
/* `runs`: param, offset and count; copied, the parameters are lent. `count`: of the slices. A zeroed struct is empty;
 * deinit takes it. */
TT_MUST_USE tt_status tt_moments_init(struct tt_device *device, const struct tt_optimizer *optimizer,
                                      const struct tt_moments_run *runs, size_t run_count, int64_t count,
                                      bool offload, struct tt_moments *moments);
void tt_moments_deinit(struct tt_moments *moments);
/* The state value `index` (tt_optimizer_value) of the run that begins at `offset` of the slices. */
void *tt_moments_value(const struct tt_moments *moments, int index, int64_t offset);

struct tt_moments_step {
    float *master; /* [moments->count], as grad */
    const float *grad;
    double lr;
    float grad_scale; /* the clipping coefficient */
    int64_t step;     /* from 1 */
};
/* The directions of the runs of whole matrices, written to the same places of y [moments->count]; elements of other
 * runs stay as they are. Then, of the slices of turned matrices, the updates (tt_whole_rule). */
TT_MUST_USE tt_status tt_moments_direct(struct tt_stream *stream, const struct tt_optimizer *optimizer,
                                        const struct tt_optim_config *config, struct tt_moments *moments,
                                        const struct tt_moments_step *step, tt_tensor y);
TT_MUST_USE tt_status tt_moments_apply(struct tt_stream *stream, const struct tt_optimizer *optimizer,
                                       const struct tt_optim_config *config, struct tt_moments *moments,
                                       const struct tt_moments_step *step, tt_tensor x);
/* Updates all runs that are not of whole matrices. */
TT_MUST_USE tt_status tt_moments_update(struct tt_stream *stream, const struct tt_optimizer *optimizer,
                                        const struct tt_optim_config *config, struct tt_moments *moments,
                                        const struct tt_moments_step *step);

#endif
