/* Cases of gemm_lora: linears with their adapters. */
#ifndef TT_TESTS_OPS_GEMM_FUSED_CASES_H
#define TT_TESTS_OPS_GEMM_FUSED_CASES_H

#include "backend/ops/gemm_fused.h"

/* Ranks of the parts of low rank beside each other, with the columns they cover. */
struct low_case {
    int64_t r[TT_LOW_RANK_PARTS], first[TT_LOW_RANK_PARTS], columns[TT_LOW_RANK_PARTS];
    int count;
};

enum addend { NONE, APART, IN_PLACE };

struct lora_case {
    int64_t m, n, k;
    tt_dtype dtype;
    bool trans;
    enum addend addend;
    int64_t gap;
    struct low_case low;
    int64_t rotated, head_dim; /* the first columns are heads; 0: none */
};

#define F TT_F32
#define H TT_BF16
#define N_ false
#define T_ true
#define NO_LOW                                                                                               \
    {                                                                                                        \
        {0}, {0}, {0}, 0                                                                                     \
    }
#define ALL(r, n)                                                                                            \
    {                                                                                                        \
        {r}, {0}, {n}, 1                                                                                     \
    }
#define QKV(r, q, k)                                                                                         \
    {                                                                                                        \
        {r, r, r}, {0, q, (q) + (k)}, {q, k, k}, 3                                                           \
    }

/* So many k that the processor's sums wait between runs over them. */
static const struct lora_case long_cases[] = {
    {150, 128, 33000, H, T_, APART, 0, QKV(8, 64, 32), 0, 0},
    {150, 128, 33000, F, N_, IN_PLACE, 0, ALL(8, 128), 0, 0},
};

static const struct lora_case lora_cases[] = {
    {1, 1, 1, F, T_, NONE, 0, ALL(1, 1), 0, 0},
    {5, 7, 3, F, T_, NONE, 2, NO_LOW, 0, 0},
    {5, 7, 3, F, N_, IN_PLACE, 1, ALL(2, 7), 0, 0},
    {9, 40, 33, F, T_, APART, 0, ALL(8, 40), 0, 0},
    {13, 48, 65, H, T_, NONE, 3, QKV(4, 24, 12), 0, 0},
    {13, 48, 65, H, N_, NONE, 0, ALL(12, 48), 0, 0},
    {13, 48, 65, H, T_, IN_PLACE, 8, ALL(8, 48), 0, 0},
    {40, 96, 130, H, T_, APART, 8, ALL(8, 96), 0, 0},
    {40, 96, 130, H, N_, APART, 0, NO_LOW, 0, 0},
    /* q and v alone; the same columns twice, as two adapters that do not lie together give them */
    {17, 64, 70, H, T_, NONE, 0, {{8, 8}, {0, 48}, {32, 16}, 2}, 0, 0},
    {17, 64, 70, F, T_, APART, 0, {{8, 8}, {0, 48}, {32, 16}, 2}, 0, 0},
    {17, 64, 70, H, N_, NONE, 0, {{8, 16}, {0, 0}, {64, 64}, 2}, 0, 0},
    {17, 64, 70, F, N_, IN_PLACE, 4, {{8, 16, 4}, {0, 0, 0}, {64, 64, 64}, 3}, 0, 0},
    /* enough rows for a processor's kernels to take narrow products along: parts at borders of panels, more
     * columns than are packed at a time, several blocks of k, ranks that are too wide, parts that begin
     * elsewhere */
    {70, 96, 130, H, T_, NONE, 8, QKV(8, 32, 32), 0, 0},
    {70, 96, 64, H, T_, NONE, 0, QKV(8, 32, 32), 64, 16},
    {70, 96, 130, F, N_, APART, 0, ALL(5, 96), 0, 0},
    {150, 1100, 400, H, T_, APART, 0, {{16, 16}, {0, 1056}, {1056, 44}, 2}, 0, 0},
    {300, 200, 800, F, N_, IN_PLACE, 4, {{64, 8}, {0, 0}, {200, 200}, 2}, 0, 0},
    {300, 200, 1100, H, N_, IN_PLACE, 4, {{64, 8}, {0, 0}, {200, 200}, 2}, 0, 0},
    {70, 100, 70, H, T_, NONE, 0, ALL(65, 100), 0, 0},
    {70, 100, 70, H, T_, APART, 0, {{8, 8}, {0, 8}, {8, 92}, 2}, 0, 0},
    /* heads of q and k */
    {9, 40, 33, F, T_, NONE, 0, NO_LOW, 24, 12},
    {13, 48, 65, H, T_, NONE, 8, QKV(8, 16, 16), 32, 16},
    /* few rows: decoding */
    {1, 84, 640, H, T_, NONE, 0, NO_LOW, 64, 32},
    {4, 224, 64, H, T_, NONE, 8, NO_LOW, 192, 64},
    {3, 64, 576, H, T_, NONE, 0, NO_LOW, 64, 16},
    {3, 64, 576, H, T_, NONE, 0, ALL(8, 64), 64, 16},
};

#endif
