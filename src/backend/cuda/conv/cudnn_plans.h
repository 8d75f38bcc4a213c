/* The convolution plans of one device: made at first use, or many at once by threads before their first use; kept in
 * memory and on disk. */
#ifndef TT_BACKEND_CUDA_CONV_CUDNN_PLANS_H
#define TT_BACKEND_CUDA_CONV_CUDNN_PLANS_H

#include "backend/cuda/conv/cudnn.h"

struct tt_cudnn_conv_entry;

/* A zeroed struct with the first four members is one without plans. */
struct tt_cudnn_conv_plans {
    const struct tt_cudnn *cudnn;
    char device[160]; /* part of the name of a stored plan */
    int index;        /* of the GPU, for the threads */
    size_t workspace_limit;
    struct tt_cudnn_conv_entry *entries;
    size_t count, capacity;
    size_t next; /* where the last search ended: a step asks in the order of the step before */
    bool collects;
    struct tt_cudnn_conv_shape *wanted;
    size_t wanted_count, wanted_capacity;
};

/* The plan for a shape, which is made where it is not there yet; the plans own the result until deinit. NULL: cuDNN has
 * none, and *pending is false. While shapes are collected nothing is made: a shape that may have a plan gives NULL with
 * *pending true, and one without an entry is remembered. */
const struct tt_cudnn_plan *tt_cudnn_conv_plans_find(struct tt_cudnn_conv_plans *plans,
                                                     const struct tt_cudnn_conv_shape *shape, bool *pending);
/* Begins and ends the collecting of shapes. */
void tt_cudnn_conv_plans_collect(struct tt_cudnn_conv_plans *plans, bool collects);
/* Makes the plans of the shapes that were collected, so that none of them is asked for again. The caller reads those
 * that are stored; `threads` threads, each with a handle of its own, build and store the others, and the caller reads
 * what they built. Fails for want of memory only. Returns in *made how many plans the threads built. */
TT_MUST_USE tt_status tt_cudnn_conv_plans_make(struct tt_cudnn_conv_plans *plans, int threads, size_t *made);
void tt_cudnn_conv_plans_deinit(struct tt_cudnn_conv_plans *plans);

#endif
