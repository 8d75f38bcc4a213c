#include "infer/sampling.h"

#include <math.h>

struct tt_sampling_options tt_sampling_options_of(const struct tt_generate_config *config)
{
    return (struct tt_sampling_options){
        .sample = config->do_sample == 1,
        .temperature = config->temperature,
        .top_k = config->top_k,
        .top_p = config->top_p,
        .min_p = config->min_p,
        .repetition_penalty = config->repetition_penalty,
    };
}

tt_status tt_sampling_check(const struct tt_sampling_options *sampling)
{
    if (!(sampling->temperature >= 0) || isinf(sampling->temperature))
        return tt_fail(TT_ERR_USAGE, "temperature is %g, but must be a number above 0",
                       sampling->temperature);
    if (sampling->top_k < 0)
        return tt_fail(TT_ERR_USAGE, "top_k is %lld, but must not be negative", (long long)sampling->top_k);
    if (!(sampling->top_p >= 0 && sampling->top_p <= 1))
        return tt_fail(TT_ERR_USAGE, "top_p is %g, but must be between 0 and 1", sampling->top_p);
    if (!(sampling->min_p >= 0 && sampling->min_p <= 1))
        return tt_fail(TT_ERR_USAGE, "min_p is %g, but must be between 0 and 1", sampling->min_p);
    if (!(sampling->repetition_penalty >= 0) || isinf(sampling->repetition_penalty))
        return tt_fail(TT_ERR_USAGE, "repetition_penalty is %g, but must be a number above 0",
                       sampling->repetition_penalty);
    return TT_OK;
}

bool tt_sampling_has_penalty(const struct tt_sampling_options *sampling)
{
    return sampling->repetition_penalty > 0 && sampling->repetition_penalty != 1.0;
}

struct tt_sample_rule tt_sampling_rule(const struct tt_sampling_options *sampling, double uniform,
                                       int32_t seen_row)
{
    const struct tt_sample_settings settings = {
        .draws = sampling->sample,
        .temperature = sampling->temperature,
        .top_k = sampling->top_k,
        .top_p = sampling->top_p,
        .min_p = sampling->min_p,
        .penalty = sampling->repetition_penalty,
        .uniform = uniform,
        .seen_row = seen_row,
    };
    return tt_sample_rule_make(&settings);
}
