/* Attention on cuda: the choice of a variant, best first.
 *
 * 1. cuDNN (cudnn.h): bf16, heads of up to 256 columns, queries and keys of equal length, no soft cap, no sinks, Hopper
 *    and newer. Sequences that all have the same length use a plan for exactly that batch, others a plan for packed
 *    sequences.
 * 2. This library's own kernels (mma.h): everything else, or everything on request. They also compute
 *    the backward pass of short sequences, where cuDNN's sums in memory cost more than the products.
 *
 * `attention` own never uses cuDNN; cudnn fails when cuDNN cannot be used at all; auto is the default.
 * `deterministic` implies own: cuDNN's deterministic backward pass needs memory that grows with the square of the
 * length.
 *
 * The memory order of lse_HT depends on the variant: [T, H] after cuDNN, [H, T] after our own kernels. The
 * variant of a forward pass depends on its arguments alone, so the backward pass knows the order. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/attention/check.h"
#include "backend/cuda/attention/mma.h"
#include "backend/cuda/attention/offsets.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/attention/cudnn.h"
#include "base/alloc.h"
#include "base/log.h"

enum {
    CONFIGURATIONS_MAX = 64,
    REASONS_MAX = 16,
    /* Our own backward kernels are faster below these lengths, with and without groups of heads that share keys. H200,
     * cuDNN 9.19, 16384 tokens, 2026-11-21, ms of cuDNN / own at 256, 384, 512: 32:8 heads of 128 0.90/0.67, 0.94/0.84,
     * 0.99/1.03; 14:2 of 64 0.29/0.19, 0.30/0.24, 0.32/0.31; 16:8 of 256 1.10/0.80, 1.18/1.04, 1.29/1.31; 32:32 of 128,
     * at 128, 192, 256: 0.80/0.60, 0.80/0.74, 0.75/0.74. The forward pass is faster with cuDNN from 128 on. */
    SHORT_GROUPED = 440,
    SHORT_PLAIN = 230
};
static const double error_max = 2e-2; /* both sides round to bf16: a correct result differs by about 4e-3 */

enum variant { VARIANT_OWN, VARIANT_PACKED, VARIANT_DENSE };

/* A kind of call for which cuDNN is checked once, at first use. */
struct configuration {
    int64_t heads, kv_heads, head_dim;
    bool window, training, dense;
    bool trusted;
};

struct tt_cuda_attention {
    struct tt_device *device;
    enum tt_tuning_attention choice;
    bool opened;                 /* opening cuDNN has been tried */
    struct tt_cuda_cudnn *cudnn; /* NULL: not usable */
    struct configuration configurations[CONFIGURATIONS_MAX];
    int configuration_count;
    char reasons[REASONS_MAX][200]; /* reasons of cuDNN's that have been logged */
    int reason_count;
};

tt_status tt_cuda_attention_create(struct tt_device *device, struct tt_cuda_attention **out)
{
    struct tt_cuda_attention *attention = tt_calloc(1, sizeof *attention);
    if (attention == NULL) return TT_ERR_MEMORY;
    attention->device = device;
    attention->choice = device->tuning.deterministic ? TT_TUNING_ATTENTION_OWN : device->tuning.attention;
    *out = attention;
    return TT_OK;
}

void tt_cuda_attention_destroy(struct tt_cuda_attention *attention)
{
    if (attention == NULL) return;
    tt_cuda_cudnn_destroy(attention->cudnn);
    tt_free(attention);
}

/* Opens cuDNN when attention is first computed: it takes 0.3 s. */
static tt_status open_cudnn(struct tt_cuda_attention *attention)
{
    if (attention->opened || attention->choice == TT_TUNING_ATTENTION_OWN) return TT_OK;
    if (tt_cuda_cudnn_create(attention->device, &attention->cudnn) == TT_OK) {
        attention->opened = true;
        tt_debug("attention: %s", tt_cuda_cudnn_name(attention->cudnn));
        return TT_OK;
    }
    if (attention->choice == TT_TUNING_ATTENTION_CUDNN) {
        tt_while("opening cuDNN, because attention is cudnn");
        return tt_error_last()->status;
    }
    attention->opened = true;
    /* Our own kernels are as fast before Hopper, so only a debug line is logged. */
    const struct tt_cuda_device *cuda = attention->device->impl;
    bool loses = cuda->architecture >= 90;
    tt_log(loses && cuda->index == 0 ? TT_LOG_WARNING : TT_LOG_DEBUG, "attention without cuDNN%s: %s",
           loses ? ", which would be about twice as fast" : "", tt_error_last()->message);
    tt_error_clear();
    return TT_OK;
}

/* Logs each reason once. */
static void note(struct tt_cuda_attention *attention, const char *pass, const char *why)
{
    char line[200];
    snprintf(line, sizeof line, "%s: %.180s", pass, why);
    for (int i = 0; i < attention->reason_count; i++) {
        if (strcmp(attention->reasons[i], line) == 0) return;
    }
    if (attention->reason_count == REASONS_MAX) return;
    memcpy(attention->reasons[attention->reason_count++], line, sizeof line);
    tt_debug("attention %s: cuDNN declined", line);
}

static tt_status check(struct tt_cuda_attention *attention, struct tt_stream *stream,
                       const struct tt_attention_forward_args *args, struct configuration *configuration)
{
    struct tt_cuda_attention_errors e;
    const char *with = configuration->window ? " with a window" : "",
               *of = configuration->dense ? " in sequences of one length" : "";
    tt_status status = tt_cuda_attention_check(attention->cudnn, stream, args, configuration->dense, &e);
    if (status == TT_ERR_UNSUPPORTED) {
        tt_info("attention: cuDNN declines %lld:%lld heads of %lld%s%s: %s", (long long)configuration->heads,
                (long long)configuration->kv_heads, (long long)configuration->head_dim, with, of,
                tt_error_last()->message);
        tt_error_clear();
        return TT_OK;
    }
    TT_TRY(status);
    /* The comparison is written so that NaN fails. */
    configuration->trusted =
        !e.compared || (e.o <= error_max && e.dq <= error_max && e.dk <= error_max && e.dv <= error_max);
    tt_log(configuration->trusted ? TT_LOG_DEBUG : TT_LOG_WARNING,
           "attention: %s %s for %lld:%lld heads of %lld%s%s (o %.1e, dq %.1e, dk %.1e, dv %.1e)",
           tt_cuda_cudnn_name(attention->cudnn),
           !e.compared              ? "is used without a check"
           : configuration->trusted ? "agrees with the own kernels"
                                    : "is wrong, and not used,",
           (long long)configuration->heads, (long long)configuration->kv_heads,
           (long long)configuration->head_dim, with, of, e.o, e.dq, e.dk, e.dv);
    return TT_OK;
}

/* Whether cuDNN's results are right for this configuration; checked at first use. */
static tt_status trust(struct tt_cuda_attention *attention, struct tt_stream *stream,
                       const struct tt_attention_forward_args *args, bool dense, bool *trusted)
{
    struct configuration wanted = {.heads = args->q_THE.dims[1],
                                   .kv_heads = args->k_TKE.dims[1],
                                   .head_dim = args->q_THE.dims[2],
                                   .window = tt_cudnn_window(args) > 0,
                                   .training = !tt_tensor_is_empty(args->lse_HT),
                                   .dense = dense};
    for (int i = 0; i < attention->configuration_count; i++) {
        const struct configuration *known = &attention->configurations[i];
        if (known->heads == wanted.heads && known->kv_heads == wanted.kv_heads &&
            known->head_dim == wanted.head_dim && known->window == wanted.window &&
            known->training == wanted.training && known->dense == wanted.dense) {
            *trusted = known->trusted;
            return TT_OK;
        }
    }
    *trusted = false;
    if (attention->configuration_count == CONFIGURATIONS_MAX) return TT_OK;
    TT_TRY(check(attention, stream, args, &wanted));
    attention->configurations[attention->configuration_count++] = wanted;
    *trusted = wanted.trusted;
    return TT_OK;
}

/* Whether cuDNN supports the forward pass of these arguments and its results are right. */
static tt_status try_cudnn(struct tt_stream *stream, const struct tt_attention_forward_args *args, bool dense,
                           bool *is)
{
    struct tt_cuda_attention *attention = tt_cuda_device_of(stream)->attention;
    char why[200];
    *is = false;
    if (!tt_cuda_cudnn_takes_forward(attention->cudnn, args, dense, why, sizeof why)) {
        note(attention, "forward", why);
        return TT_OK;
    }
    return trust(attention, stream, args, dense, is);
}

/* Chooses the variant of the forward pass. */
static tt_status choose(struct tt_stream *stream, const struct tt_attention_forward_args *args,
                        enum variant *variant)
{
    struct tt_cuda_attention *attention = tt_cuda_device_of(stream)->attention;
    bool is = false;
    *variant = VARIANT_OWN;
    if (args->soft_cap > 0 || !tt_tensor_is_empty(args->sinks_H)) return TT_OK;
    TT_TRY(open_cudnn(attention));
    if (attention->cudnn == NULL) return TT_OK;
    if (tt_cuda_cudnn_is_dense(attention->cudnn, args)) {
        TT_TRY(try_cudnn(stream, args, true, &is));
        if (is) *variant = VARIANT_DENSE;
        if (is) return TT_OK;
    }
    TT_TRY(try_cudnn(stream, args, false, &is));
    if (is) *variant = VARIANT_PACKED;
    return TT_OK;
}

static tt_status own_serves(const struct tt_attention_forward_args *args, bool backward)
{
    char why[200] = "", q[64], k[64];
    if (tt_cuda_mma_attention_serves(args, backward, why, sizeof why)) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "attention_%s: no kernel for q %s, k %s: %s",
                   backward ? "backward" : "forward", tt_tensor_format(args->q_THE, q, sizeof q),
                   tt_tensor_format(args->k_TKE, k, sizeof k), why);
}

tt_status tt_cuda_attention_forward(struct tt_stream *stream, const struct tt_attention_forward_args *args)
{
    enum variant variant;
    TT_TRY(choose(stream, args, &variant));
    if (variant != VARIANT_OWN) {
        return tt_cuda_cudnn_forward(tt_cuda_device_of(stream)->attention->cudnn, stream, args,
                                     variant == VARIANT_DENSE);
    }
    TT_TRY(own_serves(args, false));
    return tt_cuda_mma_attention_forward(stream, args);
}

/* Runs our own backward kernels after a forward pass of cuDNN's. They need lse in another order; it is
 * transposed to the end of the scratch. */
static tt_status own_after_cudnn(struct tt_stream *stream, const struct tt_attention_backward_args *args)
{
    int64_t tokens = args->forward.q_THE.dims[0], heads = args->forward.q_THE.dims[1];
    size_t own = tt_mma_attention_backward_scratch(tokens, heads, args->forward.k_TKE.dims[1],
                                                   args->forward.q_THE.dims[2]);
    struct tt_attention_backward_args transposed = *args;
    size_t needed = own + (size_t)(tokens * heads) * sizeof(float);
    if (tt_tensor_is_empty(args->scratch) || tt_tensor_bytes(args->scratch) < needed) {
        return tt_fail(TT_ERR_INTERNAL, "attention_backward: %zu bytes of scratch are needed", needed);
    }
    transposed.forward.lse_HT = tt_tensor_2d((char *)args->scratch.data + own, TT_F32, heads, tokens);
    transposed.scratch = tt_tensor_1d(args->scratch.data, TT_U8, (int64_t)own);
    TT_TRY(tt_cuda_check(tt_cuda_attention_transpose(tt_cuda_handle(stream), args->forward.lse_HT.data,
                                                     transposed.forward.lse_HT.data, tokens, heads),
                         stream, "attention_backward"));
    return tt_cuda_mma_attention_backward(stream, &transposed);
}

/* Whether the sequences are short. Work grows with the square of a length, so lengths are averaged over tokens. */
static bool is_short(const struct tt_attention_forward_args *args)
{
    int64_t limit = args->q_THE.dims[1] != args->k_TKE.dims[1] ? SHORT_GROUPED : SHORT_PLAIN, squares = 0;
    for (int64_t b = 0; b < args->sequence_count; b++) {
        int64_t length = args->cu_q[b + 1] - args->cu_q[b];
        squares += length * length;
    }
    return squares < limit * args->q_THE.dims[0];
}

/* Chooses the variant of the backward pass: the variant of the forward pass, else cuDNN's other one, which reads
 * the same lse, else our own kernels. */
static tt_status choose_backward(struct tt_stream *stream, const struct tt_attention_backward_args *args,
                                 enum variant forward, enum variant *variant)
{
    struct tt_cuda_attention *attention = tt_cuda_device_of(stream)->attention;
    char why[200];
    bool is = forward != VARIANT_OWN;
    *variant = forward;
    if (is &&
        tt_cuda_cudnn_takes_backward(attention->cudnn, args, forward == VARIANT_DENSE, why, sizeof why)) {
        return TT_OK;
    }
    *variant = VARIANT_OWN;
    if (is) note(attention, "backward", why);
    if (forward != VARIANT_DENSE) return TT_OK;
    TT_TRY(try_cudnn(stream, &args->forward, false, &is));
    if (is && tt_cuda_cudnn_takes_backward(attention->cudnn, args, false, why, sizeof why)) {
        *variant = VARIANT_PACKED;
    }
    return TT_OK;
}

tt_status tt_cuda_attention_backward(struct tt_stream *stream, const struct tt_attention_backward_args *args)
{
    struct tt_cuda_attention *attention = tt_cuda_device_of(stream)->attention;
    char why[200];
    enum variant forward, variant = VARIANT_OWN;
    TT_TRY(choose(stream, &args->forward, &forward));
    bool prefers_own = attention->choice == TT_TUNING_ATTENTION_AUTO && is_short(&args->forward) &&
                       tt_cuda_mma_attention_serves(&args->forward, true, why, sizeof why);
    if (!prefers_own) TT_TRY(choose_backward(stream, args, forward, &variant));
    if (variant != VARIANT_OWN) {
        return tt_cuda_cudnn_backward(attention->cudnn, stream, args, variant == VARIANT_DENSE);
    }
    TT_TRY(own_serves(&args->forward, true));
    return forward != VARIANT_OWN ? own_after_cudnn(stream, args)
                                  : tt_cuda_mma_attention_backward(stream, args);
}
