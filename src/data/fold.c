#include "data/fold.h"

#include <string.h>

#include "base/integer.h"

enum { ARRAY_ALIGNMENT = 64 }; /* bytes */

/* Arrays of a folded batch, one after the other in a block. */
struct arrays {
    int64_t *row_keys;
    int32_t *ids, *positions, *cu_tokens, *rows, *labels;
    uint8_t *supervised;
    int32_t *key_tokens, *token_keys, *row_of, *first_row, *from_token, *from_row;
    float *columns[TT_COLUMNS_MAX];
};

static bool is_of_tokens_or_rows(enum tt_per per)
{
    return per == TT_PER_TOKEN || per == TT_PER_ROW;
}

/* Returns the bytes needed; `block` may be NULL to compute only these. */
static size_t lay_out(const struct tt_batch *batch, int64_t copies, char *block, struct arrays *arrays)
{
    size_t at = 0, tokens = (size_t)batch->token_count, rows = (size_t)batch->row_count;
    size_t sequences = (size_t)batch->sequence_count, word = sizeof(int32_t);
    const struct {
        void **array;
        size_t bytes;
    } parts[] = {
        {(void **)&arrays->row_keys, tokens * sizeof(int64_t)},
        {(void **)&arrays->ids, tokens * word},
        {(void **)&arrays->positions, tokens * word},
        {(void **)&arrays->cu_tokens, (sequences + 1) * word},
        {(void **)&arrays->rows, rows * word},
        {(void **)&arrays->labels, rows * word},
        {(void **)&arrays->supervised, rows},
        {(void **)&arrays->key_tokens, tokens * word},
        {(void **)&arrays->token_keys, tokens * (size_t)copies * word},
        {(void **)&arrays->row_of, rows * word},
        {(void **)&arrays->first_row, sequences * word},
        {(void **)&arrays->from_token, tokens * word},
        {(void **)&arrays->from_row, rows * word},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (block != NULL) *parts[i].array = block + at;
        at += tt_align_up(parts[i].bytes, ARRAY_ALIGNMENT);
    }
    for (int c = 0; c < batch->column_count; c++) {
        if (!is_of_tokens_or_rows(batch->columns[c].per)) continue;
        if (block != NULL) arrays->columns[c] = (float *)(void *)(block + at);
        at += tt_align_up((batch->columns[c].per == TT_PER_TOKEN ? tokens : rows) * sizeof(float),
                          ARRAY_ALIGNMENT);
    }
    return at;
}

/* The sequences that begin with tokens of the same one, that one among them, at most; 1: none do. */
static tt_status count_copies(const struct tt_batch *batch, int64_t *most)
{
    int64_t copies = 1;
    int32_t last = -1;
    *most = 1;
    for (int64_t b = 0; batch->prefix != NULL && b < batch->sequence_count; b++) {
        int32_t parent = batch->parent[b], length = batch->cu_seqlens[b + 1] - batch->cu_seqlens[b];
        if (batch->prefix[b] == 0) continue;
        if (parent < 0 || parent < last || parent >= b || batch->prefix[parent] != 0 ||
            batch->prefix[b] >= length ||
            batch->prefix[b] >= batch->cu_seqlens[parent + 1] - batch->cu_seqlens[parent])
            return tt_fail(TT_ERR_INTERNAL, "sequence %lld cannot begin with %d tokens of sequence %d",
                           (long long)b, batch->prefix[b], parent);
        copies = parent == last ? copies + 1 : 2;
        last = parent;
        if (copies > *most) *most = copies;
    }
    return TT_OK;
}

/* The token of each key, and the key that each token is from. Returns the number of tokens. */
static int32_t fold_tokens(const struct tt_batch *batch, const struct arrays *arrays)
{
    int32_t tokens = 0;
    arrays->cu_tokens[0] = 0;
    for (int64_t b = 0; b < batch->sequence_count; b++) {
        int32_t start = batch->cu_seqlens[b], length = batch->cu_seqlens[b + 1] - start;
        int32_t shared = batch->cu_seqlens[batch->parent[b]];
        for (int32_t i = 0; i < length; i++) {
            bool own = i >= batch->prefix[b];
            arrays->key_tokens[start + i] = own ? tokens : arrays->key_tokens[shared + i];
            if (own) arrays->from_token[tokens++] = start + i;
        }
        arrays->cu_tokens[b + 1] = tokens;
    }
    return tokens;
}

/* The keys of each token, in their order. */
static void list_keys(int64_t key_count, int32_t tokens, int64_t copies, const struct arrays *arrays)
{
    for (int64_t i = 0; i < tokens * copies; i++) arrays->token_keys[i] = (int32_t)key_count;
    for (int64_t m = 0; m < key_count; m++) {
        int32_t *keys = arrays->token_keys + arrays->key_tokens[m] * copies;
        while (*keys < key_count) keys++;
        *keys = (int32_t)m;
    }
}

static tt_status fold_rows(const struct tt_batch *batch, const struct arrays *arrays, int32_t *row_count)
{
    int64_t n = 0;
    int32_t rows = 0;
    for (int64_t b = 0; b < batch->sequence_count; b++) {
        int32_t start = batch->cu_seqlens[b], end = batch->cu_seqlens[b + 1], parent = batch->parent[b];
        int64_t first = n;
        arrays->first_row[b] = (int32_t)n;
        for (; n < batch->row_count && batch->rows[n] < end; n++) {
            int32_t at = batch->rows[n] - start;
            if (at >= batch->prefix[b]) {
                arrays->from_row[rows] = (int32_t)n;
                arrays->row_of[n] = rows++;
                continue;
            }
            int64_t same = arrays->first_row[parent] + n - first;
            if (same >= first || batch->rows[same] - batch->cu_seqlens[parent] != at ||
                batch->labels[same] != batch->labels[n])
                return tt_fail(TT_ERR_INTERNAL, "sequence %lld has another row at token %d than sequence %d",
                               (long long)b, at, parent);
            arrays->row_of[n] = arrays->row_of[same];
        }
    }
    *row_count = rows;
    return TT_OK;
}

static void copy_values(const struct tt_batch *batch, const struct arrays *arrays, struct tt_batch *out)
{
    for (int64_t t = 0; t < out->token_count; t++) {
        int32_t from = arrays->from_token[t];
        arrays->ids[t] = batch->ids[from];
        arrays->positions[t] = batch->positions[from];
        arrays->row_keys[t] = batch->row_keys[from];
    }
    for (int64_t n = 0; n < out->row_count; n++) {
        int32_t from = arrays->from_row[n];
        arrays->rows[n] = arrays->key_tokens[batch->rows[from]];
        arrays->labels[n] = batch->labels[from];
        arrays->supervised[n] = batch->supervised == NULL || batch->supervised[from] != 0;
    }
    for (int c = 0; c < batch->column_count; c++) {
        bool of_tokens = batch->columns[c].per == TT_PER_TOKEN;
        if (!is_of_tokens_or_rows(batch->columns[c].per)) continue;
        const int32_t *from = of_tokens ? arrays->from_token : arrays->from_row;
        int64_t count = of_tokens ? out->token_count : out->row_count;
        for (int64_t i = 0; i < count; i++) arrays->columns[c][i] = batch->columns[c].values[from[i]];
        out->columns[c].values = arrays->columns[c];
    }
}

tt_status tt_batch_fold(const struct tt_batch *batch, struct tt_batch_storage *storage,
                        struct tt_batch_fold *out)
{
    struct arrays arrays = {0};
    int32_t rows;
    struct tt_batch_fold fold = {.batch = *batch};
    int64_t copies;
    *out = fold;
    TT_TRY(count_copies(batch, &copies));
    if (copies == 1) return TT_OK;
    size_t bytes = lay_out(batch, copies, NULL, &arrays);
    if (bytes > storage->bytes) TT_TRY(tt_batch_storage_reserve(storage, bytes + bytes / 4));
    lay_out(batch, copies, storage->block, &arrays);
    struct tt_batch *folded = &fold.batch;
    int32_t tokens = fold_tokens(batch, &arrays);
    list_keys(batch->token_count, tokens, copies, &arrays);
    TT_TRY(fold_rows(batch, &arrays, &rows));
    folded->token_count = tokens;
    folded->row_count = rows;
    copy_values(batch, &arrays, folded);
    folded->ids = arrays.ids;
    folded->positions = arrays.positions;
    folded->row_keys = arrays.row_keys;
    folded->cu_seqlens = arrays.cu_tokens;
    folded->rows = arrays.rows;
    folded->labels = arrays.labels;
    folded->supervised = arrays.supervised;
    folded->parent = folded->prefix = NULL;
    folded->branches =
        (struct tt_batch_branches){batch->token_count, batch->cu_seqlens, arrays.key_tokens, copies,
                                   arrays.token_keys,  arrays.from_token};
    fold.row_of = arrays.row_of;
    *out = fold;
    return TT_OK;
}
