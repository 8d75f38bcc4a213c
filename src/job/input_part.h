/* A part of a job's inputs that is neither a file of a model folder nor of the data (job/inputs.h). */
#ifndef TT_JOB_INPUT_PART_H
#define TT_JOB_INPUT_PART_H

#include "base/error.h"
#include "io/safetensors.h"

/* It is known by its name. */
struct tt_input_part {
    const char *name;
    const struct tt_safetensors *weights; /* NULL: the sum stands for it */
    uint64_t sum;
    int64_t amount; /* what is summed: bytes, or samples */
    bool is_data;   /* of samples; else of the model */
};
typedef tt_status tt_input_visit(void *context, const struct tt_input_part *part);

#endif
