/* The division of a scan (backend/ops/scan.h) into chunks on the cpu, and the numbers of its rows. */
#ifndef TT_BACKEND_CPU_SCAN_SCAN_H
#define TT_BACKEND_CPU_SCAN_SCAN_H

#include "backend/ops/scan.h"

enum { SCAN_LINE = 16 }; /* rows and columns are padded with zeros to a multiple of it */

static inline int64_t scan_padded(int64_t count)
{
    return (count + SCAN_LINE - 1) / SCAN_LINE * SCAN_LINE;
}

/* One value head of a call. */
struct scan_head {
    const struct tt_scan_forward_args *args;
    int64_t head, key_head;
    int64_t width, value_width;   /* E, W */
    int64_t stride, value_stride; /* floats from row to row: padded widths */
    double rate, bias, skip;      /* exp(a_log), dt_bias, D */
};

/* The numbers of the rows of a chunk. Behind its last row the decay is 1, and the share 0. */
struct scan_rates {
    float decay[TT_SCAN_CHUNK]; /* g */
    float share[TT_SCAN_CHUNK]; /* the factor of v: beta, or dt */
    /* sums of g up to a row, inclusive, each as the sum of two floats; exp of it; exp of what follows it */
    float high[TT_SCAN_CHUNK], low[TT_SCAN_CHUNK], grow[TT_SCAN_CHUNK], fade[TT_SCAN_CHUNK];
    float all; /* exp of the sum of all */
};

struct scan_chunk {
    const struct scan_head *head;
    int64_t first, rows, padded; /* of all rows of the call */
    struct scan_rates rates;
    float q_root[TT_SCAN_CHUNK], k_root[TT_SCAN_CHUNK]; /* one over the root that q and k were divided by */
};

struct scan_head tt_scan_head_at(const struct tt_scan_forward_args *args, int64_t head);
/* The rates of the chunk's rows. */
void tt_scan_read_rates(struct scan_chunk *chunk);
/* Gradients of `a` and `b` from those of g and of the share, rounded to their types; values[0] gets that of `a` and
 * values[count], with `count` rows in the call, that of a_log for each row. */
void tt_scan_store_rates(const struct tt_scan_backward_args *args, const struct scan_chunk *chunk,
                         const double *dg, const float *dshare, float *values, int64_t count);

static inline struct scan_chunk scan_chunk_at(const struct scan_head *head, int64_t first, int64_t end)
{
    struct scan_chunk chunk = {.head = head, .first = first};
    chunk.rows = end - first < TT_SCAN_CHUNK ? end - first : TT_SCAN_CHUNK;
    chunk.padded = scan_padded(chunk.rows);
    return chunk;
}

#endif
