#include "ops_experts.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/ops/expert_rows.h"
#include "backend/ops/gemm_scaled.h"
#include "backend/ops/grouped_gemm.h"
#include "backend/ops/route.h"
#include "base/rng.h"

enum { EXPERTS = 128, SLOTS = 8 };

/* A quarter of them where there is no GPU. */
static int64_t hidden_of(const struct bench *bench)
{
    return bench->gpu ? 2048 : 512;
}

static int64_t width_of(const struct bench *bench)
{
    return bench->gpu ? 768 : 192;
}

static tt_status run_grouped_gemm(struct tt_stream *stream, const void *args)
{
    return tt_grouped_gemm(stream, args);
}

static tt_status run_grouped_gradients(struct tt_stream *stream, const void *args)
{
    return tt_grouped_gradients(stream, args);
}

static tt_status run_order_rows(struct tt_stream *stream, const void *args)
{
    return tt_order_rows(stream, args);
}

static tt_status run_spread_rows(struct tt_stream *stream, const void *args)
{
    return tt_spread_rows(stream, args);
}

static tt_status run_combine_rows(struct tt_stream *stream, const void *args)
{
    return tt_combine_rows(stream, args);
}

static tt_status run_weigh_rows(struct tt_stream *stream, const void *args)
{
    return tt_weigh_rows(stream, args);
}

static tt_status run_route_forward(struct tt_stream *stream, const void *args)
{
    return tt_route_forward(stream, args);
}

static tt_status run_route_backward(struct tt_stream *stream, const void *args)
{
    return tt_route_backward(stream, args);
}

static tt_tensor device_ints(struct bench *bench, const int32_t *values, int64_t rows, int64_t columns)
{
    tt_tensor tensor = tt_tensor_2d(NULL, TT_I32, rows, columns);
    tensor.data = bench_memory(bench, tt_tensor_bytes(tensor));
    if (values == NULL) return tensor;
    bench_must(tt_copy_to_device(bench->stream, tensor.data, values, tt_tensor_bytes(tensor)));
    bench_must(tt_stream_synchronize(bench->stream));
    return tensor;
}

static tt_tensor empty_tensor(struct bench *bench, tt_dtype dtype, int64_t rows, int64_t columns)
{
    tt_tensor tensor = tt_tensor_2d(NULL, dtype, rows, columns);
    tensor.data = bench_memory(bench, tt_tensor_bytes(tensor));
    return tensor;
}

/* Weights of 1: what is multiplied by them again and again stays as it is. */
static tt_tensor ones(struct bench *bench, int64_t rows, int64_t columns)
{
    int32_t *values = malloc((size_t)(rows * columns) * sizeof *values);
    if (values == NULL) exit(1);
    for (int64_t i = 0; i < rows * columns; i++) values[i] = 0x3f800000; /* 1.0f */
    tt_tensor tensor = device_ints(bench, values, rows, columns);
    free(values);
    tensor.dtype = TT_F32;
    return tensor;
}

/* Draws SLOTS different experts for each token, by the weights of `share`. */
static void draw_experts(int32_t *ids, int64_t tokens, const double *share)
{
    struct tt_rng rng = tt_rng_make(7);
    for (int64_t t = 0; t < tokens; t++) {
        double left[EXPERTS], sum = 0;
        for (int e = 0; e < EXPERTS; e++) sum += left[e] = share[e];
        for (int s = 0; s < SLOTS; s++) {
            uint32_t word[4];
            tt_rng_block(rng, (uint64_t)t, (uint64_t)s, word);
            double at = (double)word[0] / 4294967296.0 * sum;
            int e = 0;
            while (e + 1 < EXPERTS && at >= left[e]) at -= left[e++];
            while (left[e] == 0) e = (e + 1) % EXPERTS; /* the last one, by rounding */
            ids[t * SLOTS + s] = e;
            sum -= left[e];
            left[e] = 0;
        }
    }
}

struct expert_rows {
    tt_tensor ids_TS, place_TS, slot_M, border_X1;
};

static tt_tensor as_vector(tt_tensor x)
{
    return tt_tensor_1d(x.data, x.dtype, tt_tensor_count(x));
}

/* `zipf`: expert e has a share of 1 / (e + 1), else all have the same. */
static struct expert_rows make_rows(struct bench *bench, int64_t tokens, bool zipf)
{
    double share[EXPERTS];
    int32_t *ids = malloc((size_t)(tokens * SLOTS) * sizeof *ids);
    if (ids == NULL) exit(1);
    for (int e = 0; e < EXPERTS; e++) share[e] = zipf ? 1.0 / (e + 1) : 1.0;
    draw_experts(ids, tokens, share);
    struct expert_rows rows = {device_ints(bench, ids, tokens, SLOTS),
                               device_ints(bench, NULL, tokens, SLOTS),
                               as_vector(device_ints(bench, NULL, tokens, SLOTS)),
                               as_vector(device_ints(bench, NULL, 1, EXPERTS + 1))};
    free(ids);
    struct tt_order_rows_args order = {
        .ids_TS = rows.ids_TS, .place_TS = rows.place_TS, .slot_M = rows.slot_M, .border_X1 = rows.border_X1};
    bench_must(tt_order_rows(bench->stream, &order));
    return rows;
}

static void bench_product(struct bench *bench, const char *what, const struct expert_rows *rows,
                          bool transposed, int64_t n, int64_t k, int64_t r)
{
    char name[128];
    int64_t m = rows->slot_M.dims[0];
    tt_tensor w = bench_scaled_tensor(bench, TT_BF16, EXPERTS * n, k, 0.03);
    struct tt_grouped_gemm_args args = {
        .border_X1 = rows->border_X1,
        .x_MK = bench_random_tensor(bench, TT_BF16, m, k),
        .w_XNK = tt_tensor_3d(w.data, TT_BF16, EXPERTS, transposed ? k : n, transposed ? n : k),
        .transposed = transposed,
        .y_MN = bench_random_tensor(bench, TT_BF16, m, n)};
    if (r > 0) {
        args.h_MR = bench_random_tensor(bench, TT_BF16, m, r);
        args.b_XNR = tt_tensor_3d(bench_random_tensor(bench, TT_BF16, EXPERTS * n, r).data, TT_BF16, EXPERTS,
                                  transposed ? r : n, transposed ? n : r);
    }
    snprintf(name, sizeof name, "experts %s %lldx%lldx%lld r %lld", what, (long long)m, (long long)n,
             (long long)k, (long long)r);
    bench_measure(bench, name, run_grouped_gemm, &args, 2.0 * (double)m * (double)n * (double)(k + r), 0);
}

/* The same in FP8: matrices have rows of k in both directions. */
static void bench_codes(struct bench *bench, const char *what, const struct expert_rows *rows, int64_t n,
                        int64_t k)
{
    char name[128];
    int64_t m = rows->slot_M.dims[0];
    tt_tensor x = bench_random_tensor(bench, TT_BF16, m, k),
              w = bench_scaled_tensor(bench, TT_BF16, EXPERTS * n, k, 0.03);
    struct tt_quantize_rows_args x_rows = {x, empty_tensor(bench, TT_F8_E4M3, m, k),
                                           as_vector(empty_tensor(bench, TT_F32, m, 1))},
                                 w_rows = {w, empty_tensor(bench, TT_F8_E4M3, EXPERTS * n, k),
                                           as_vector(empty_tensor(bench, TT_F32, EXPERTS * n, 1))};
    struct tt_grouped_gemm_args args = {
        .border_X1 = rows->border_X1,
        .x_MK = tt_tensor_2d(NULL, TT_BF16, m, k),
        .codes = {x_rows.codes_MK, x_rows.scale_M,
                  tt_tensor_3d(w_rows.codes_MK.data, TT_F8_E4M3, EXPERTS, n, k),
                  tt_tensor_2d(w_rows.scale_M.data, TT_F32, EXPERTS, n)},
        .y_MN = bench_random_tensor(bench, TT_BF16, m, n)};
    bench_must(tt_quantize_rows(bench->stream, &x_rows));
    bench_must(tt_quantize_rows(bench->stream, &w_rows));
    snprintf(name, sizeof name, "experts in fp8 %s %lldx%lldx%lld", what, (long long)m, (long long)n,
             (long long)k);
    bench_measure(bench, name, run_grouped_gemm, &args, 2.0 * (double)m * (double)n * (double)k, 0);
}

static void bench_products(struct bench *bench, int64_t tokens, bool zipf)
{
    const int64_t hidden = hidden_of(bench), width = width_of(bench);
    const struct {
        const char *name;
        bool transposed;
        int64_t n, k, r;
    } products[] = {{"gate_up", false, 2 * width, hidden, 0},
                    {"down", false, hidden, width, 0},
                    {"dx of down", true, width, hidden, 0},
                    {"dx of gate_up", true, hidden, 2 * width, 0},
                    {"gate_up with LoRA", false, 2 * width, hidden, 16},
                    {"A of gate_up", false, 16, hidden, 0}};
    char name[64];
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        struct expert_rows rows = make_rows(bench, tokens, zipf);
        snprintf(name, sizeof name, "%s, %s", products[i].name, zipf ? "Zipf" : "balanced");
        bench_product(bench, name, &rows, products[i].transposed, products[i].n, products[i].k,
                      products[i].r);
        bench_release(bench);
        if (products[i].r > 0 || products[i].n % 64 != 0 || !tt_device_multiplies_fp8(bench->device))
            continue;
        rows = make_rows(bench, tokens, zipf);
        bench_codes(bench, name, &rows, products[i].n, products[i].k);
        bench_release(bench);
    }
}

static void bench_gradients(struct bench *bench, const char *what, int64_t tokens, int64_t n, int64_t k)
{
    char name[128];
    struct expert_rows rows = make_rows(bench, tokens, false);
    int64_t m = tokens * SLOTS;
    tt_tensor dw = bench_random_tensor(bench, TT_F32, EXPERTS * n, k);
    struct tt_grouped_gradients_args args = {.border_X1 = rows.border_X1,
                                             .dy_MN = bench_random_tensor(bench, TT_BF16, m, n),
                                             .x_MK = bench_random_tensor(bench, TT_BF16, m, k),
                                             .dw_XNK = tt_tensor_3d(dw.data, TT_F32, EXPERTS, n, k)};
    snprintf(name, sizeof name, "experts %s, balanced %lldx%lldx%lld", what, (long long)m, (long long)n,
             (long long)k);
    bench_measure(bench, name, run_grouped_gradients, &args, 2.0 * (double)m * (double)n * (double)k,
                  (double)tt_tensor_bytes(args.dy_MN) + (double)tt_tensor_bytes(args.x_MK) +
                      2.0 * (double)tt_tensor_bytes(dw));
    bench_release(bench);
}

static double bytes_of(const tt_tensor *tensors, size_t count)
{
    double bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (!tt_tensor_is_empty(tensors[i])) bytes += (double)tt_tensor_bytes(tensors[i]);
    return bytes;
}

#define BYTES(...)                                                                                           \
    bytes_of((const tt_tensor[]){__VA_ARGS__}, sizeof((const tt_tensor[]){__VA_ARGS__}) / sizeof(tt_tensor))

static void bench_rows_of_experts(struct bench *bench, int64_t tokens)
{
    struct expert_rows rows = make_rows(bench, tokens, false);
    int64_t m = tokens * SLOTS;
    tt_tensor x = bench_random_tensor(bench, TT_BF16, tokens, hidden_of(bench)),
              all = bench_random_tensor(bench, TT_BF16, m, hidden_of(bench)),
              act = bench_random_tensor(bench, TT_BF16, m, width_of(bench)),
              dact = bench_scaled_tensor(bench, TT_BF16, m, width_of(bench), 0.01),
              weights = bench_random_tensor(bench, TT_F32, tokens, SLOTS),
              dweights = bench_random_tensor(bench, TT_F32, tokens, SLOTS);
    struct tt_order_rows_args order = {
        .ids_TS = rows.ids_TS, .place_TS = rows.place_TS, .slot_M = rows.slot_M, .border_X1 = rows.border_X1};
    bench_measure(bench, "experts order_rows", run_order_rows, &order, 0,
                  BYTES(rows.ids_TS, rows.ids_TS, rows.place_TS, rows.slot_M));
    struct tt_spread_rows_args spread = {.x_TD = x, .slot_M = rows.slot_M, .y_MD = all};
    bench_measure(bench, "experts spread_rows", run_spread_rows, &spread, 0, BYTES(x, all, rows.slot_M));
    struct tt_combine_rows_args combine = {
        .x_MD = all, .weights_TS = weights, .place_TS = rows.place_TS, .addend_TD = x, .y_TD = x};
    bench_measure(bench, "experts combine_rows", run_combine_rows, &combine, 0,
                  BYTES(all, weights, rows.place_TS, x, x));
    struct tt_weigh_rows_args weigh = {act, dact, ones(bench, tokens, SLOTS), rows.slot_M, dweights};
    bench_measure(bench, "experts weigh_rows", run_weigh_rows, &weigh, 0,
                  BYTES(act, dact, dact, weights, rows.slot_M, dweights));
    bench_release(bench);
}

static void bench_route(struct bench *bench, int64_t tokens)
{
    tt_tensor logits = bench_random_tensor(bench, TT_BF16, tokens, EXPERTS),
              dlogits = bench_random_tensor(bench, TT_BF16, tokens, EXPERTS),
              weights = bench_random_tensor(bench, TT_F32, tokens, SLOTS),
              ids = device_ints(bench, NULL, tokens, SLOTS),
              load = bench_random_tensor(bench, TT_F32, 2, EXPERTS);
    struct tt_route_forward_args forward = {
        .rule = {.normalizes = true}, .logits_TX = logits, .ids_TS = ids, .weights_TS = weights};
    bench_measure(bench, "experts route_forward", run_route_forward, &forward, 0,
                  BYTES(logits, ids, weights));
    forward.load_2X = load;
    bench_measure(bench, "experts route_forward with load", run_route_forward, &forward, 0,
                  BYTES(logits, logits, ids, weights));
    struct tt_route_backward_args backward = {.rule = {.normalizes = true},
                                              .logits_TX = logits,
                                              .ids_TS = ids,
                                              .dweights_TS = weights,
                                              .dload_X = tt_tensor_1d(load.data, TT_F32, EXPERTS),
                                              .dlogits_TX = dlogits};
    bench_measure(bench, "experts route_backward", run_route_backward, &backward, 0,
                  BYTES(logits, dlogits, ids, weights));
    bench_release(bench);
}

void bench_experts(struct bench *bench)
{
    int64_t tokens = bench->gpu ? 16384 : 128;
    bench_products(bench, tokens, false);
    bench_products(bench, tokens, true);
    if (bench->gpu) bench_products(bench, tokens / 4, false);
    bench_gradients(bench, "dA of gate_up", tokens, 16, hidden_of(bench));
    bench_gradients(bench, "dB of down", tokens, hidden_of(bench), 16);
    if (bench->gpu) bench_gradients(bench, "dW of down", tokens, hidden_of(bench), width_of(bench));
    bench_rows_of_experts(bench, tokens);
    bench_route(bench, tokens);
}
