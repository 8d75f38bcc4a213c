/* The numbers that a scan has for each row and head: decay, share, and their gradients. */
#include <math.h>

#include "backend/cpu/scan/scan.h"
#include "tensor/dtype.h"

/* Sums of more rows stay far from infinity. */
static const double LOWEST = -1e30;

static double value_at(const tt_tensor *x, int64_t index)
{
    return (double)(x->dtype == TT_BF16 ? tt_bf16_to_f32(((const uint16_t *)x->data)[index])
                                        : ((const float *)x->data)[index]);
}

static void store_at(const tt_tensor *x, int64_t index, double value)
{
    if (x->dtype == TT_BF16)
        ((uint16_t *)x->data)[index] = tt_f32_to_bf16((float)value);
    else
        ((float *)x->data)[index] = (float)value;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

struct scan_head tt_scan_head_at(const struct tt_scan_forward_args *args, int64_t head)
{
    int64_t width = args->q_TKE.dims[2], value_width = args->v_THW.dims[2];
    return (struct scan_head){
        .args = args,
        .head = head,
        .key_head = head / (args->v_THW.dims[1] / args->q_TKE.dims[1]),
        .width = width,
        .value_width = value_width,
        .stride = scan_padded(width),
        .value_stride = scan_padded(value_width),
        .rate = exp(value_at(&args->a_log_H, head)),
        .bias = value_at(&args->dt_bias_H, head),
        .skip = tt_tensor_is_empty(args->skip_H) ? 0 : value_at(&args->skip_H, head),
    };
}

/* exp(x), and 0 where a float would not be normal. */
static float decay_of(double x)
{
    return x < -87.0 ? 0.0f : (float)exp(x);
}

void tt_scan_read_rates(struct scan_chunk *chunk)
{
    const struct scan_head *head = chunk->head;
    const struct tt_scan_forward_args *args = head->args;
    struct scan_rates *rates = &chunk->rates;
    double sums[TT_SCAN_CHUNK], sum = 0;
    for (int64_t i = 0; i < chunk->padded; i++) {
        rates->decay[i] = rates->share[i] = 0;
        if (i < chunk->rows) {
            int64_t at = (chunk->first + i) * args->a_TH.strides[0] + head->head;
            double dt = softplus(value_at(&args->a_TH, at) + head->bias);
            if (args->rule == TT_SCAN_MAMBA2) {
                dt = dt < args->dt_min ? args->dt_min : dt > args->dt_max ? args->dt_max : dt;
                rates->share[i] = (float)dt;
            } else {
                at = (chunk->first + i) * args->b_TH.strides[0] + head->head;
                rates->share[i] = (float)sigmoid(value_at(&args->b_TH, at));
            }
            double g = -head->rate * dt;
            rates->decay[i] = (float)(g < LOWEST ? LOWEST : g);
        }
        sums[i] = sum += (double)rates->decay[i];
    }
    for (int64_t i = 0; i < chunk->padded; i++) {
        rates->high[i] = (float)sums[i];
        rates->low[i] = (float)(sums[i] - (double)rates->high[i]);
        rates->grow[i] = decay_of(sums[i]);
        rates->fade[i] = decay_of(sum - sums[i]);
    }
    rates->all = decay_of(sum);
}

void tt_scan_store_rates(const struct tt_scan_backward_args *args, const struct scan_chunk *chunk,
                         const double *dg, const float *dshare, float *values, int64_t count)
{
    const struct tt_scan_forward_args *forward = &args->forward;
    const struct scan_head *head = chunk->head;
    for (int64_t i = 0; i < chunk->rows; i++) {
        int64_t row = chunk->first + i;
        double x = value_at(&forward->a_TH, row * forward->a_TH.strides[0] + head->head) + head->bias;
        double share = (double)chunk->rates.share[i], ddt = -head->rate * dg[i];
        if (forward->rule == TT_SCAN_MAMBA2) {
            double dt = softplus(x);
            ddt += (double)dshare[i];
            if (dt < forward->dt_min || dt > forward->dt_max) ddt = 0;
        } else {
            store_at(&args->db_TH, row * args->db_TH.strides[0] + head->head,
                     (double)dshare[i] * share * (1 - share));
        }
        double da = ddt * sigmoid(x);
        store_at(&args->da_TH, row * args->da_TH.strides[0] + head->head, da);
        values[row] = (float)da;
        values[count + row] = (float)(dg[i] * (double)chunk->rates.decay[i]);
    }
}
