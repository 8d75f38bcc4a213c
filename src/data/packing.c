#include "data/packing.h"

#include <string.h>

#include "base/alloc.h"

enum { LEVELS_MAX = 5 };
static const uint32_t no_pack = UINT32_MAX;

/* A set of small integers: one bit each, and above every 64 bits one bit that is set if any of them is. */
struct bit_tree {
    uint64_t *levels[LEVELS_MAX];
    size_t words[LEVELS_MAX];
    int level_count;
};

static tt_status bit_tree_init(struct bit_tree *tree, size_t bits)
{
    *tree = (struct bit_tree){0};
    do {
        size_t words = (bits + 63) / 64;
        tree->levels[tree->level_count] = tt_calloc(words, sizeof(uint64_t));
        if (tree->levels[tree->level_count] == NULL) return TT_ERR_MEMORY;
        tree->words[tree->level_count++] = words;
        bits = words;
    } while (bits > 1);
    return TT_OK;
}

static void bit_tree_deinit(struct bit_tree *tree)
{
    for (int i = 0; i < tree->level_count; i++) tt_free(tree->levels[i]);
}

static void bit_tree_set(struct bit_tree *tree, size_t bit)
{
    for (int i = 0; i < tree->level_count; i++, bit >>= 6)
        tree->levels[i][bit >> 6] |= (uint64_t)1 << (bit & 63);
}

static void bit_tree_clear(struct bit_tree *tree, size_t bit)
{
    for (int i = 0; i < tree->level_count; i++, bit >>= 6) {
        tree->levels[i][bit >> 6] &= ~((uint64_t)1 << (bit & 63));
        if (tree->levels[i][bit >> 6] != 0) return;
    }
}

/* The smallest member that is at least `bit`, or SIZE_MAX. */
static size_t bit_tree_next(const struct bit_tree *tree, size_t bit)
{
    for (int level = 0; level < tree->level_count; level++) {
        size_t word = bit >> 6;
        if (word >= tree->words[level]) return SIZE_MAX;
        uint64_t rest = tree->levels[level][word] >> (bit & 63);
        if (rest == 0) {
            bit = word + 1;
            continue;
        }
        bit += (size_t)__builtin_ctzll(rest);
        while (level-- > 0) bit = bit << 6 | (size_t)__builtin_ctzll(tree->levels[level][bit]);
        return bit;
    }
    return SIZE_MAX;
}

/* Packs by remaining space: one stack for each space. */
struct spaces {
    struct bit_tree tree;
    uint32_t *top;  /* [max_length + 1] */
    uint32_t *next; /* [packs] the one below in its stack */
};

static void push(struct spaces *spaces, size_t space, uint32_t pack)
{
    spaces->next[pack] = spaces->top[space];
    spaces->top[space] = pack;
    bit_tree_set(&spaces->tree, space);
}

static uint32_t pop(struct spaces *spaces, size_t space)
{
    uint32_t pack = spaces->top[space];
    spaces->top[space] = spaces->next[pack];
    if (spaces->top[space] == no_pack) bit_tree_clear(&spaces->tree, space);
    return pack;
}

/* Indices of the samples, longest first; equal lengths in order. */
static tt_status sort_by_length(const struct tt_store *store, size_t max_length, uint32_t *order)
{
    size_t *start = tt_calloc(max_length + 2, sizeof *start);
    if (start == NULL) return TT_ERR_MEMORY;
    /* Bucket b holds length max_length - b. */
    for (size_t i = 0; i < store->sample_count; i++)
        start[max_length - (size_t)store->samples[i].count + 1]++;
    for (size_t b = 0; b <= max_length; b++) start[b + 1] += start[b];
    for (size_t i = 0; i < store->sample_count; i++) {
        order[start[max_length - (size_t)store->samples[i].count]++] = (uint32_t)i;
    }
    tt_free(start);
    return TT_OK;
}

static size_t place_all(const struct tt_store *store, size_t max_length, const uint32_t *order,
                        struct spaces *spaces, uint32_t *pack_of)
{
    uint32_t packs = 0;
    for (size_t i = 0; i < store->sample_count; i++) {
        size_t count = (size_t)store->samples[order[i]].count;
        size_t space = bit_tree_next(&spaces->tree, count);
        uint32_t pack = space == SIZE_MAX ? packs++ : pop(spaces, space);
        if (space == SIZE_MAX) space = max_length;
        pack_of[order[i]] = pack;
        if (space > count) push(spaces, space - count, pack);
    }
    return packs;
}

static tt_status group(const uint32_t *pack_of, size_t sample_count, size_t pack_count,
                       struct tt_packs *packs)
{
    packs->count = pack_count;
    packs->first = tt_calloc(pack_count + 2, sizeof *packs->first);
    packs->samples = tt_calloc(sample_count, sizeof *packs->samples);
    if (packs->first == NULL || packs->samples == NULL) return TT_ERR_MEMORY;
    /* Counting sort; first[p + 1] runs from the start of pack p to its end. */
    for (size_t i = 0; i < sample_count; i++) packs->first[pack_of[i] + 2]++;
    for (size_t p = 0; p < pack_count; p++) packs->first[p + 2] += packs->first[p + 1];
    for (size_t i = 0; i < sample_count; i++) packs->samples[packs->first[pack_of[i] + 1]++] = (uint32_t)i;
    return TT_OK;
}

tt_status tt_packs_make(const struct tt_store *store, int64_t max_length, struct tt_packs *packs)
{
    size_t count = store->sample_count, length = (size_t)max_length;
    if (count >= no_pack)
        return tt_fail(TT_ERR_UNSUPPORTED, "packing supports fewer than %u samples", no_pack);
    for (size_t i = 0; i < count; i++) {
        if (store->samples[i].count <= max_length) continue;
        return tt_fail(TT_ERR_USAGE, "sample %zu has %d tokens and does not fit into a pack of %lld", i,
                       (int)store->samples[i].count, (long long)max_length);
    }
    tt_status status = TT_OK;
    struct spaces spaces = {0};
    uint32_t *order = tt_calloc(count, sizeof *order), *pack_of = tt_calloc(count, sizeof *pack_of);
    spaces.top = tt_calloc(length + 1, sizeof *spaces.top);
    spaces.next = tt_calloc(count, sizeof *spaces.next);
    if (order == NULL || pack_of == NULL || spaces.top == NULL || spaces.next == NULL) TT_GO(TT_ERR_MEMORY);
    memset(spaces.top, 0xff, (length + 1) * sizeof *spaces.top);
    TT_GO(bit_tree_init(&spaces.tree, length + 1));
    TT_GO(sort_by_length(store, length, order));
    TT_GO(group(pack_of, count, place_all(store, length, order, &spaces, pack_of), packs));
out:
    if (status != TT_OK) tt_packs_deinit(packs);
    bit_tree_deinit(&spaces.tree);
    tt_free(spaces.top);
    tt_free(spaces.next);
    tt_free(order);
    tt_free(pack_of);
    return status;
}

void tt_packs_deinit(struct tt_packs *packs)
{
    tt_free(packs->first);
    tt_free(packs->samples);
    *packs = (struct tt_packs){0};
}
