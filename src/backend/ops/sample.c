#include "backend/ops/sample.h"

#include <math.h>

#include "backend/device_impl.h"
#include "backend/ops/check.h"

/* The largest distance whose weight is at least `min_p` of the largest. */
static int32_t distance_of(double min_p)
{
    double least = ceil(ldexp(min_p, TT_SAMPLE_WEIGHT_BITS));
    int32_t low = 0, high = TT_SAMPLE_DISTANCE_MAX;
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if ((double)tt_sample_weight(middle) >= least)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct tt_sample_rule tt_sample_rule_make(const struct tt_sample_settings *settings)
{
    const double steps = 2.0 * (1 << TT_SAMPLE_STEP_BITS) * 1.4426950408889634;
    double per_logit = steps / (settings->temperature > 0 ? settings->temperature : 1.0);
    bool penalizes = settings->penalty > 0 && settings->penalty != 1.0;
    return (struct tt_sample_rule){
        .uniform = settings->uniform,
        .top_p = settings->top_p > 0 ? settings->top_p : 1.0,
        .penalty = penalizes ? settings->penalty : 1.0,
        .steps_per_logit = per_logit < 1e30 ? (float)per_logit : 1e30f, /* times 0 must be 0 */
        .top_k = settings->top_k < INT32_MAX ? (int32_t)settings->top_k : 0,
        .distance_max = settings->min_p > 0 ? distance_of(settings->min_p) : TT_SAMPLE_DISTANCE_MAX,
        .seen_row = penalizes ? settings->seen_row : -1,
        .draws = settings->draws,
        .mask = settings->mask,
    };
}

tt_status tt_sample(struct tt_stream *stream, const struct tt_sample_args *args)
{
    struct tt_check check = {.op = "sample"};
    tt_check_tensor(&check, "logits", args->logits_NV, TT_TYPES_F32, 2, 2);
    if (check.status != TT_OK) return check.status;
    int64_t rows = args->logits_NV.dims[0], vocab = args->logits_NV.dims[1];
    tt_check_that(&check, vocab > 0 && vocab <= INT32_MAX, "a vocabulary of %lld", (long long)vocab);
    tt_check_shape(&check, "rules", args->rules_N, 1u << TT_U8, 1,
                   TT_DIMS(rows * (int64_t)sizeof(struct tt_sample_rule)));
    tt_check_that(&check, (uintptr_t)args->rules_N.data % 8 == 0, "rules are not 8-byte aligned");
    tt_check_shape(&check, "ids", args->ids_N, TT_TYPES_I32, 1, TT_DIMS(rows));
    if (!tt_tensor_is_empty(args->seen_SW)) {
        tt_check_tensor(&check, "seen", args->seen_SW, TT_TYPES_I32, 2, 2);
        if (check.status != TT_OK) return check.status;
        tt_check_shape(&check, "seen", args->seen_SW, TT_TYPES_I32, 2,
                       TT_DIMS(args->seen_SW.dims[0], tt_sample_seen_words(vocab)));
    }
    if (!tt_tensor_is_empty(args->masks_SW)) {
        tt_check_tensor(&check, "masks", args->masks_SW, TT_TYPES_I32, 2, 2);
        if (check.status != TT_OK) return check.status;
        tt_check_shape(&check, "masks", args->masks_SW, TT_TYPES_I32, 2,
                       TT_DIMS(args->masks_SW.dims[0], tt_sample_seen_words(vocab)));
    }
    tt_check_apart(&check, "logits", args->logits_NV, "ids", args->ids_N);
    tt_check_apart(&check, "logits", args->logits_NV, "rules", args->rules_N);
    tt_check_apart(&check, "seen", args->seen_SW, "ids", args->ids_N);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_sample(stream, args);
}
