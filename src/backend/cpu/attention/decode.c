/* Single queries against a cache: a task is one query head. Scores are kept for a chunk of keys at a time. */
#include <math.h>
#include <omp.h>

#include "backend/cpu/parallel.h"
#include "backend/ops/attention.h"

enum { CHUNK = 512, COLUMNS = TT_ATTENTION_HEAD_DIM_MAX };

struct scratch {
    float query[COLUMNS], row[COLUMNS], sums[COLUMNS], scores[CHUNK];
};

static const char *row_at(const tt_tensor *x, int64_t row, int64_t head)
{
    return (const char *)x->data +
           (row * x->strides[0] + head * x->strides[1]) * (int64_t)tt_dtype_bytes(x->dtype);
}

/* The row as floats: itself, or a copy in `copy`. */
static const float *read_row(const tt_tensor *x, int64_t row, int64_t head, float *copy)
{
    const void *from = row_at(x, row, head);
    if (x->dtype == TT_F32) return from;
    (void)tt_dtype_convert(copy, TT_F32, from, x->dtype, (size_t)x->dims[2]);
    return copy;
}

static void attend(const struct tt_attention_decode_args *args, int64_t t, int64_t head, struct scratch *s)
{
    int64_t columns = args->q_THE.dims[2], kv_head = head / (args->q_THE.dims[1] / args->k_RKE.dims[1]);
    int64_t first = ((const int32_t *)args->first_T.data)[t],
            count = ((const int32_t *)args->count_T.data)[t];
    int64_t begin = args->window > 0 && count > args->window ? count - args->window : 0;
    const float *query = read_row(&args->q_THE, t, head, s->query);
    float max = -INFINITY, sum = 0;
    for (int64_t e = 0; e < columns; e++) s->sums[e] = 0;
    for (int64_t from = begin; from < count; from += CHUNK) {
        int64_t keys = count - from < CHUNK ? count - from : CHUNK;
        float next = max;
        for (int64_t j = 0; j < keys; j++) {
            const float *k = read_row(&args->k_RKE, first + from + j, kv_head, s->row);
            float dot = 0;
            for (int64_t e = 0; e < columns; e++) dot += query[e] * k[e];
            dot *= (float)args->scale;
            if (args->soft_cap > 0) dot = args->soft_cap * tanhf(dot / args->soft_cap);
            s->scores[j] = dot;
            if (dot > next) next = dot;
        }
        float shrink = expf(max - next);
        sum *= shrink;
        for (int64_t e = 0; e < columns; e++) s->sums[e] *= shrink;
        for (int64_t j = 0; j < keys; j++) {
            const float *v = read_row(&args->v_RKE, first + from + j, kv_head, s->row);
            float weight = expf(s->scores[j] - next);
            sum += weight;
            for (int64_t e = 0; e < columns; e++) s->sums[e] += weight * v[e];
        }
        max = next;
    }
    float factor = count > 0 ? 1 / sum : 0;
    if (count > 0 && !tt_tensor_is_empty(args->sinks_H)) {
        float sink = ((const float *)args->sinks_H.data)[head], most = sink > max ? sink : max;
        float shrink = expf(max - most);
        factor = shrink / (sum * shrink + expf(sink - most));
    }
    for (int64_t e = 0; e < columns; e++) s->sums[e] *= factor;
    (void)tt_dtype_convert((void *)row_at(&args->o_THE, t, head), args->o_THE.dtype, s->sums, TT_F32,
                           (size_t)columns);
}

tt_status tt_cpu_attention_decode(struct tt_stream *stream, const struct tt_attention_decode_args *args)
{
    int64_t heads = args->q_THE.dims[1], tasks = args->q_THE.dims[0] * heads;
    const int32_t *first = args->first_T.data, *count = args->count_T.data;
    for (int64_t t = 0; t < args->q_THE.dims[0]; t++) {
        if (count[t] >= 0 && count[t] <= args->max_count && first[t] >= 0 &&
            first[t] + (int64_t)count[t] <= args->k_RKE.dims[0])
            continue;
        return tt_fail(TT_ERR_INTERNAL, "attention_decode: row %lld has keys %d, %d of them, of %lld",
                       (long long)t, first[t], count[t], (long long)args->k_RKE.dims[0]);
    }
    int threads = tt_cpu_threads(stream, tasks * args->max_count * args->q_THE.dims[2]);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t task = 0; task < tasks; task++)
        attend(args, task / heads, task % heads, tt_cpu_scratch(stream, omp_get_thread_num()));
    return TT_OK;
}
