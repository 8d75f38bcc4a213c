#include "text/added.h"

#include <string.h>

#include "base/alloc.h"
#include "text/unicode.h"

struct added_edge {
    uint64_t key; /* state << 8 | byte, plus 1; 0 = free */
    uint32_t target;
};

struct added_state {
    uint32_t fail;
    uint32_t parent;
    uint32_t length; /* of the longest pattern that ends here, 0 = none */
    int32_t id;
    unsigned char byte;
};

static uint32_t *edge_of(const struct added_finder *finder, uint32_t state, unsigned char byte, bool make)
{
    uint64_t key = ((uint64_t)state << 8 | byte) + 1;
    size_t mask = finder->edge_slots - 1;
    size_t slot = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 20) & mask;
    while (finder->edges[slot].key != key) {
        if (finder->edges[slot].key == 0) {
            if (!make) return NULL;
            finder->edges[slot].key = key;
            break;
        }
        slot = (slot + 1) & mask;
    }
    return &finder->edges[slot].target;
}

static tt_status insert(struct added_finder *finder, const struct added_pattern *pattern)
{
    uint32_t state = 0;
    for (size_t i = pattern->bytes; i-- > 0;) {
        unsigned char byte = (unsigned char)pattern->data[i];
        uint32_t *target = edge_of(finder, state, byte, true);
        if (*target == 0) {
            if (tt_grow(&finder->states, finder->state_count, &finder->state_capacity) != 0) {
                return TT_ERR_MEMORY;
            }
            *target = (uint32_t)finder->state_count++;
            finder->states[*target] = (struct added_state){.parent = state, .byte = byte};
        }
        state = *target;
    }
    struct added_state *end = &finder->states[state];
    if (end->length == 0) {
        end->length = (uint32_t)pattern->bytes;
        end->id = pattern->id;
    }
    return TT_OK;
}

static uint32_t step(const struct added_finder *finder, uint32_t state, unsigned char byte)
{
    for (;;) {
        const uint32_t *target = edge_of(finder, state, byte, false);
        if (target != NULL) return *target;
        if (state == 0) return 0;
        state = finder->states[state].fail;
    }
}

/* Failure links, in order of depth. `order` starts as all states in order of creation, where a parent
 * precedes its children but not every shallower state, so it is filled level by level. */
static tt_status link_failures(struct added_finder *finder)
{
    size_t count = finder->state_count;
    uint32_t *depth = tt_calloc(count, sizeof *depth);
    uint32_t *order = tt_calloc(count, sizeof *order);
    uint32_t *starts = tt_calloc(count + 1, sizeof *starts);
    tt_status status = depth == NULL || order == NULL || starts == NULL ? TT_ERR_MEMORY : TT_OK;
    if (status != TT_OK) goto out;
    for (size_t s = 1; s < count; s++) {
        depth[s] = depth[finder->states[s].parent] + 1;
        starts[depth[s]]++; /* depth[s] <= count - 1 */
    }
    for (size_t d = 1; d <= count; d++) starts[d] += starts[d - 1];
    for (size_t s = count; s-- > 1;) order[--starts[depth[s]]] = (uint32_t)s;
    for (size_t i = 0; i + 1 < count; i++) {
        struct added_state *state = &finder->states[order[i]];
        state->fail = state->parent == 0 ? 0 : step(finder, finder->states[state->parent].fail, state->byte);
        const struct added_state *fail = &finder->states[state->fail];
        if (state->length == 0 && fail->length > 0) {
            state->length = fail->length;
            state->id = fail->id;
        }
    }
out:
    tt_free(depth);
    tt_free(order);
    tt_free(starts);
    return status;
}

tt_status added_finder_build(struct added_finder *finder, const struct added_pattern *patterns, size_t count)
{
    *finder = (struct added_finder){0};
    if (count == 0) return TT_OK;
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++) bytes += patterns[i].bytes;
    if (bytes >= UINT32_MAX / 4) return tt_fail(TT_ERR_DATA, "the added tokens are too long");
    for (finder->edge_slots = 16; finder->edge_slots < 2 * bytes; finder->edge_slots *= 2) continue;
    finder->edges = tt_calloc(finder->edge_slots, sizeof finder->edges[0]);
    if (finder->edges == NULL) return TT_ERR_MEMORY;
    if (tt_grow(&finder->states, 0, &finder->state_capacity) != 0) {
        return TT_ERR_MEMORY;
    }
    finder->states[0] = (struct added_state){0};
    finder->state_count = 1;
    for (size_t i = 0; i < count; i++) {
        finder->first[(unsigned char)patterns[i].data[patterns[i].bytes - 1]] = true;
        if (patterns[i].bytes > finder->longest) finder->longest = patterns[i].bytes;
        TT_TRY(insert(finder, &patterns[i]));
    }
    return link_failures(finder);
}

void added_finder_deinit(struct added_finder *finder)
{
    tt_free(finder->edges);
    tt_free(finder->states);
    *finder = (struct added_finder){0};
}

void added_finder_take_blanks(struct added_finder *finder)
{
    finder->blank_is_metaspace = true;
    finder->first[' '] = finder->first[(unsigned char)TT_METASPACE[strlen(TT_METASPACE) - 1]];
}

void added_matches_restart(struct added_matches *matches)
{
    matches->count = matches->block = matches->taken = 0;
}

/* Follows the bytes of U+2581 from its end. */
static uint32_t step_metaspace(const struct added_finder *finder, uint32_t state)
{
    for (size_t i = strlen(TT_METASPACE); i-- > 0;)
        state = step(finder, state, (unsigned char)TT_METASPACE[i]);
    return state;
}

/* The number of bytes of the text that a pattern of `pattern_bytes` matches. */
static uint32_t matched_bytes(const struct added_finder *finder, const char *text, uint32_t pattern_bytes)
{
    uint32_t bytes = 0;
    if (!finder->blank_is_metaspace) return pattern_bytes;
    for (size_t matched = 0; matched < pattern_bytes; bytes++)
        matched += text[bytes] == ' ' ? strlen(TT_METASPACE) : 1;
    return bytes;
}

/* Finds the matches that begin in a block, the last one first. They end at most the length of the longest
 * pattern after the block. */
static tt_status find_in_block(const struct added_finder *finder, const char *text, size_t bytes,
                               size_t start, size_t end, struct added_matches *matches)
{
    uint32_t state = 0;
    for (size_t i = bytes - end > finder->longest ? end + finder->longest : bytes; i-- > start;) {
        unsigned char byte = (unsigned char)text[i];
        if (state == 0 && !finder->first[byte]) continue;
        bool metaspace = byte == ' ' && finder->blank_is_metaspace;
        state = metaspace ? step_metaspace(finder, state) : step(finder, state, byte);
        const struct added_state *here = &finder->states[state];
        if (here->length == 0 || i >= end) continue;
        if (tt_grow(&matches->data, matches->count, &matches->capacity) != 0) {
            return TT_ERR_MEMORY;
        }
        matches->data[matches->count++] =
            (struct added_match){(uint32_t)i, matched_bytes(finder, text + i, here->length), here->id};
    }
    return TT_OK;
}

tt_status added_finder_next(const struct added_finder *finder, const char *text, size_t bytes,
                            struct added_matches *matches, struct added_match *match)
{
    const size_t block_bytes = (1 << 16) + 4 * finder->longest; /* few bytes belong to two searches */
    *match = (struct added_match){0};
    if (finder->state_count == 0) return TT_OK;
    while (matches->count > 0 || matches->block < bytes) {
        if (matches->count == 0) {
            size_t start = matches->block, end = bytes - start > block_bytes ? start + block_bytes : bytes;
            TT_TRY(find_in_block(finder, text, bytes, start, end, matches));
            matches->block = end;
            continue;
        }
        struct added_match next = matches->data[--matches->count];
        if (next.start < matches->taken) continue;
        matches->taken = (size_t)next.start + next.bytes;
        *match = next;
        break;
    }
    return TT_OK;
}
