/* Common kernels of attention's two directions. Compiled once per instruction set, like vector_math.h.
 *
 * The lanes of a vector are query rows. The queries that read one key/value head (all G heads of its group,
 * token by token: row r is head r % G of token r / G) are divided into panels of PANEL rows. A panel is stored
 * transposed, [E][PANEL]. So all products have one form: an element of a K, V, P or dS block, broadcast, times
 * vectors of rows. Keys need no transposition, and softmax runs along the keys without crossing lanes. */
#include "backend/cpu/products.h"

#define PANEL_VECTORS 3
#define PANEL (PANEL_VECTORS * TT_VECTOR_LANES)

/* exp(x) = 2^(x * LOG2_E) */
#define LOG2_E 0x1.715476p+0f

/* Widens the elements of one head's row to fp32, multiplied by `factor`. */
TT_INLINE void TT_PASS(widen_row)(float *to, const void *from, int64_t index, bool bf16, int64_t count,
                                  float factor)
{
    int64_t e = 0;
    if (bf16) {
        for (; e + TT_VECTOR_LANES <= count; e += TT_VECTOR_LANES)
            vstore(to, e, false, vload(from, index + e, true) * factor);
        for (; e < count; e++) to[e] = tt_bf16_to_f32(((const uint16_t *)from)[index + e]) * factor;
    } else {
        for (; e + TT_VECTOR_LANES <= count; e += TT_VECTOR_LANES)
            vstore(to, e, false, vload(from, index + e, false) * factor);
        for (; e < count; e++) to[e] = ((const float *)from)[index + e] * factor;
    }
}
#define widen_row TT_PASS(widen_row)

/* Widens keys first .. first + count of the block's key/value head to fp32, [count][E]. The rows of one head are
 * not contiguous, so the next one is prefetched explicitly. */
static void TT_PASS(widen_keys)(float *to, const tt_tensor *keys, const struct attention_block *block,
                                int64_t first, int64_t count)
{
    const int64_t ahead = 8, line = 64;
    int64_t head_dim = keys->dims[2], element = keys->dtype == TT_BF16 ? 2 : 4;
    int64_t at = attention_key_index(keys, block, first);
    for (int64_t j = 0; j < count; j++, at += keys->strides[0]) {
        const char *later = (const char *)keys->data + (at + ahead * keys->strides[0]) * element;
        if (first + j + ahead < block->length_k)
            for (int64_t b = 0; b < head_dim * element; b += line) __builtin_prefetch(later + b);
        widen_row(to + j * head_dim, keys->data, at, keys->dtype == TT_BF16, head_dim, 1.0f);
    }
}
#define widen_keys TT_PASS(widen_keys)

/* Widens rows first .. first + count of the block to fp32, [count][stride], multiplied by `factor`. */
static void TT_PASS(widen_rows)(float *to, int64_t stride, const tt_tensor *queries,
                                const struct attention_block *block, int64_t first, int64_t count,
                                float factor)
{
    for (int64_t r = 0; r < count; r++) {
        int64_t at = attention_row_index(queries, block, first + r), head_dim = queries->dims[2];
        widen_row(to + r * stride, queries->data, at, queries->dtype == TT_BF16, head_dim, factor);
        for (int64_t e = head_dim; e < stride; e++) to[r * stride + e] = 0;
    }
}
#define widen_rows TT_PASS(widen_rows)

/* [count][stride] -> [E][PANEL]; the lanes from `count` on become 0. */
static void TT_PASS(transpose_to_panel)(float *panel, const float *rows, int64_t stride, int64_t count,
                                        int64_t head_dim, float factor)
{
    for (int64_t r = 0; r < count; r++)
        for (int64_t e = 0; e < head_dim; e++) panel[e * PANEL + r] = rows[r * stride + e] * factor;
    for (int64_t e = 0; e < head_dim && count < PANEL; e++)
        memset(panel + e * PANEL + count, 0, (size_t)(PANEL - count) * sizeof *panel);
}
#define transpose_to_panel TT_PASS(transpose_to_panel)

/* Stores one head's row, rounded to the tensor's type. */
static void TT_PASS(store_row)(const tt_tensor *to, int64_t at, const float *row)
{
    int64_t head_dim = to->dims[2], e = 0;
    bool bf16 = to->dtype == TT_BF16;
    for (; e + TT_VECTOR_LANES <= head_dim; e += TT_VECTOR_LANES)
        vstore(to->data, at + e, bf16, vload(row, e, false));
    if (e < head_dim)
        vstore_some(to->data, at + e, bf16, vload_some(row, e, false, head_dim - e), head_dim - e);
}
#define store_row TT_PASS(store_row)

/* Stores the panel's rows in the tensor, each multiplied by its own factor. */
static void TT_PASS(store_panel)(const tt_tensor *to, const struct attention_block *block, int64_t first,
                                 int64_t count, const float *panel, const float factor_of_lane[PANEL])
{
    int64_t head_dim = to->dims[2];
    for (int64_t r = 0; r < count; r++) {
        float row[TT_ATTENTION_HEAD_DIM_MAX];
        for (int64_t e = 0; e < head_dim; e++) row[e] = panel[e * PANEL + r] * factor_of_lane[r];
        store_row(to, attention_row_index(to, block, first + r), row);
    }
}
#define store_panel TT_PASS(store_panel)

/* The keys that the rows of a panel see: row r sees [first[r], limit[r]). All rows together see [begin, end),
 * and every row sees all of [full_begin, full_end). The values of lanes without a row are arbitrary; nothing
 * reads their results. */
struct TT_PASS(sight) {
    int32_t first[PANEL], limit[PANEL];
    int64_t begin, end, full_begin, full_end;
};
#define sight TT_PASS(sight)

static void TT_PASS(look)(struct sight *sight, const struct attention_block *block, int64_t first_row,
                          int64_t count)
{
    memset(sight, 0, sizeof *sight);
    for (int64_t r = 0; r < count; r++) {
        struct attention_span span = attention_keys_of_row(block, first_row + r);
        sight->first[r] = (int32_t)span.begin;
        sight->limit[r] = (int32_t)span.end;
        if (r == 0) {
            sight->begin = span.begin;
            sight->full_end = span.end;
        }
        sight->end = span.end;
        sight->full_begin = span.begin;
    }
}
#define look TT_PASS(look)

TT_INLINE vi TT_PASS(sees)(const struct sight *sight, int64_t lane, int64_t key)
{
    vi first, limit;
    memcpy(&first, sight->first + lane, sizeof first);
    memcpy(&limit, sight->limit + lane, sizeof limit);
    vi at = vsplat_int((int32_t)key);
    return (vi)(at >= first) & (vi)(at < limit);
}
#define sees TT_PASS(sees)
