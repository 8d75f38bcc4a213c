/* Sums, minima and maxima of the ranks' vectors, in order of rank (comm_impl.h). */
#include <stdint.h>
#include <string.h>

#include "comm/comm_impl.h"

/* Elements summed at a time: the sums of a block stay in the first-level cache while the ranks are added one after the
 * other. */
enum { BLOCK = 2048 };

#define REDUCE_LOOP(expression)                                                                              \
    for (size_t i = 0; i < count; i++) {                                                                     \
        sums[i] = (expression);                                                                              \
    }

/* Accumulates elements of one rank; `load` reads element i, `sum` combines two. A NaN in either operand is kept: a
 * maximum without it would hide a fault. */
#define DEFINE_ACCUMULATE(name, type, load, sum)                                                             \
    static void name(type *restrict sums, const void *from, size_t offset, size_t count,                     \
                     enum tt_reduce reduce)                                                                  \
    {                                                                                                        \
        if (reduce == TT_REDUCE_SUM) {                                                                       \
            REDUCE_LOOP(sum(sums[i], load(from, offset + i)))                                                \
        } else if (reduce == TT_REDUCE_MAX) {                                                                \
            REDUCE_LOOP(load(from, offset + i) <= sums[i] || sums[i] != sums[i] ? sums[i]                    \
                                                                                : load(from, offset + i))    \
        } else {                                                                                             \
            REDUCE_LOOP(load(from, offset + i) >= sums[i] || sums[i] != sums[i] ? sums[i]                    \
                                                                                : load(from, offset + i))    \
        }                                                                                                    \
    }

#define LOAD_F32(from, i) (((const float *)(from))[i])
#define LOAD_BF16(from, i) tt_bf16_to_f32(((const uint16_t *)(from))[i])
#define LOAD_F64(from, i) (((const double *)(from))[i])
#define LOAD_I64(from, i) (((const int64_t *)(from))[i])
#define SUM_FLOAT(a, b) ((a) + (b))
/* Unsigned, because overflow of signed integers is undefined. */
#define SUM_I64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

DEFINE_ACCUMULATE(accumulate_f32, float, LOAD_F32, SUM_FLOAT)
DEFINE_ACCUMULATE(accumulate_bf16, float, LOAD_BF16, SUM_FLOAT)
DEFINE_ACCUMULATE(accumulate_f64, double, LOAD_F64, SUM_FLOAT)
DEFINE_ACCUMULATE(accumulate_i64, int64_t, LOAD_I64, SUM_I64)

static void reduce_f32(float *to, const void *const *from, int from_count, size_t offset, size_t count,
                       enum tt_reduce reduce)
{
    float sums[BLOCK];
    memcpy(sums, (const float *)from[0] + offset, count * sizeof *sums);
    for (int q = 1; q < from_count; q++) accumulate_f32(sums, from[q], offset, count, reduce);
    memcpy(to, sums, count * sizeof *sums);
}

static void reduce_bf16(uint16_t *to, const void *const *from, int from_count, size_t offset, size_t count,
                        enum tt_reduce reduce)
{
    float sums[BLOCK];
    for (size_t i = 0; i < count; i++) sums[i] = LOAD_BF16(from[0], offset + i);
    for (int q = 1; q < from_count; q++) accumulate_bf16(sums, from[q], offset, count, reduce);
    for (size_t i = 0; i < count; i++) to[i] = tt_f32_to_bf16(sums[i]);
}

static void reduce_f64(double *to, const void *const *from, int from_count, size_t offset, size_t count,
                       enum tt_reduce reduce)
{
    double sums[BLOCK];
    memcpy(sums, (const double *)from[0] + offset, count * sizeof *sums);
    for (int q = 1; q < from_count; q++) accumulate_f64(sums, from[q], offset, count, reduce);
    memcpy(to, sums, count * sizeof *sums);
}

static void reduce_i64(int64_t *to, const void *const *from, int from_count, size_t offset, size_t count,
                       enum tt_reduce reduce)
{
    int64_t sums[BLOCK];
    memcpy(sums, (const int64_t *)from[0] + offset, count * sizeof *sums);
    for (int q = 1; q < from_count; q++) accumulate_i64(sums, from[q], offset, count, reduce);
    memcpy(to, sums, count * sizeof *sums);
}

void tt_reduce_ordered(void *to, const void *const *from, int from_count, size_t offset, size_t count,
                       tt_dtype dtype, enum tt_reduce reduce)
{
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t part = count - done < BLOCK ? count - done : BLOCK;
        if (dtype == TT_F32) {
            reduce_f32((float *)to + done, from, from_count, offset + done, part, reduce);
        } else if (dtype == TT_BF16) {
            reduce_bf16((uint16_t *)to + done, from, from_count, offset + done, part, reduce);
        } else if (dtype == TT_F64) {
            reduce_f64((double *)to + done, from, from_count, offset + done, part, reduce);
        } else {
            reduce_i64((int64_t *)to + done, from, from_count, offset + done, part, reduce);
        }
    }
}
