/* The time of ops along sequences: short convolutions and gated norms by their bytes, scans by their products too. */
#include "backend/plan/plan_ops.h"

/* Estimates, not measured: on GPUs the rate that kernels on tensor cores are to reach, 150 of 640 TFLOP/s of an H200
 * (the plain ones of cuda/scan.cu are far slower); on processors half of that of large products. */
static double scan_rate(const struct tt_stream *stream)
{
    return stream->device->chip->gemm_flops * (stream->device->is_host ? 0.5 : 0.23);
}

static double state_bytes(const struct tt_sequences *sequences, const struct tt_states *states)
{
    if (tt_tensor_is_empty(states->pool) || states->pool.dims[0] == 0) return 0.0;
    return 2.0 * (double)sequences->count * plan_size(states->pool) / (double)states->pool.dims[0];
}

tt_status plan_conv1d_forward(struct tt_stream *stream, const struct tt_conv1d_forward_args *args)
{
    return plan_moves(stream, plan_size(args->x_TC) + plan_size(args->in_gate_TC) +
                                  plan_size(args->out_gate_TC) + plan_size(args->y_TC) +
                                  state_bytes(&args->sequences, &args->states));
}

tt_status plan_conv1d_backward(struct tt_stream *stream, const struct tt_conv1d_backward_args *args)
{
    const struct tt_conv1d_forward_args *forward = &args->forward;
    return plan_moves(stream, plan_size(forward->x_TC) + 2.0 * plan_size(forward->in_gate_TC) +
                                  2.0 * plan_size(forward->out_gate_TC) + plan_size(args->dy_TC) +
                                  plan_size(args->dx_TC));
}

tt_status plan_scan_forward(struct tt_stream *stream, const struct tt_scan_forward_args *args)
{
    double bytes = plan_size(args->q_TKE) + plan_size(args->k_TKE) + plan_size(args->v_THW) +
                   plan_size(args->a_TH) + plan_size(args->b_TH) + plan_size(args->o_THW) +
                   state_bytes(&args->sequences, &args->states);
    tt_plan_spend(stream, tt_scan_forward_flops(args), scan_rate(stream), bytes);
    return TT_OK;
}

tt_status plan_scan_backward(struct tt_stream *stream, const struct tt_scan_backward_args *args)
{
    const struct tt_scan_forward_args *forward = &args->forward;
    double bytes = 2.0 * (plan_size(forward->q_TKE) + plan_size(forward->k_TKE) + plan_size(forward->v_THW) +
                          plan_size(forward->a_TH) + plan_size(forward->b_TH)) +
                   plan_size(args->do_THW) + 2.0 * (double)tt_scan_backward_scratch(stream->device, args);
    tt_plan_spend(stream, tt_scan_backward_flops(forward), scan_rate(stream), bytes);
    return TT_OK;
}

tt_status plan_latent_heads(struct tt_stream *stream, const struct tt_latent_heads_args *args)
{
    return plan_moves(stream, plan_size(args->q_TC) + plan_size(args->kv_TC) + plan_size(args->shared_TR) +
                                  plan_size(args->q_THW) + plan_size(args->k_THW) + plan_size(args->v_THW));
}

tt_status plan_ready_heads(struct tt_stream *stream, const struct tt_ready_heads_args *args)
{
    double made = plan_size(args->q_THE) + plan_size(args->k_TKE);
    return plan_moves(stream, 2.0 * made + plan_size(args->k_TKE) + 2.0 * plan_size(args->v_TKE));
}

tt_status plan_gated_norm_forward(struct tt_stream *stream, const struct tt_gated_norm_forward_args *args)
{
    double codes = plan_size(args->codes_TN);
    if (codes > 0.0 && stream->device->is_host) codes += plan_size(args->y_TN); /* read again */
    return plan_moves(stream, plan_size(args->x_TN) + plan_size(args->z_TN) + plan_size(args->y_TN) + codes);
}

tt_status plan_gated_norm_backward(struct tt_stream *stream, const struct tt_gated_norm_backward_args *args)
{
    return plan_moves(stream, plan_size(args->dy_TN) + plan_size(args->x_TN) + plan_size(args->z_TN) +
                                  plan_size(args->dx_TN) + plan_size(args->dz_TN));
}
