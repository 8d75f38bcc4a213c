#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "grammar/vocabulary_impl.h"
#include "text/token_bytes.h"

enum { DEPTH_MAX = 4096 };

void vocabulary_id_bytes(int32_t id, char bytes[VOCABULARY_ID_BYTES])
{
    for (int i = 0; i < VOCABULARY_ID_BYTES; i++, id /= 8) bytes[i] = (char)(0xF8 | id % 8);
}

struct tt_span vocabulary_bytes(const struct tt_vocabulary *vocabulary, int32_t id)
{
    if (id < 0 || id >= vocabulary->count) return (struct tt_span){0};
    return (struct tt_span){vocabulary->bytes + vocabulary->begins[id],
                            vocabulary->begins[id + 1] - vocabulary->begins[id]};
}

size_t tt_vocabulary_words(const struct tt_vocabulary *vocabulary)
{
    return (size_t)((vocabulary->count + 31) / 32);
}

void tt_vocabulary_destroy(struct tt_vocabulary *vocabulary)
{
    if (vocabulary == NULL) return;
    tt_free(vocabulary->nodes);
    tt_free(vocabulary->same);
    tt_free(vocabulary->begins);
    tt_free(vocabulary->bytes);
    tt_free(vocabulary);
}

static tt_status begin(int64_t count, struct tt_vocabulary **out)
{
    struct tt_vocabulary *vocabulary = tt_calloc(1, sizeof *vocabulary);
    if (vocabulary == NULL) return TT_ERR_MEMORY;
    vocabulary->count = count;
    vocabulary->same = tt_calloc((size_t)count + 1, sizeof *vocabulary->same);
    vocabulary->begins = tt_calloc((size_t)count + 1, sizeof *vocabulary->begins);
    if (vocabulary->same == NULL || vocabulary->begins == NULL) {
        tt_vocabulary_destroy(vocabulary);
        return TT_ERR_MEMORY;
    }
    *out = vocabulary;
    return TT_OK;
}

/* Adds the bytes of token `id`, the next one. */
static tt_status add_bytes(struct tt_vocabulary *vocabulary, int64_t id, struct tt_span text)
{
    size_t wanted = vocabulary->byte_count + text.bytes;
    if (wanted > vocabulary->byte_capacity)
        TT_TRY(tt_reserve(&vocabulary->bytes, 2 * wanted, &vocabulary->byte_capacity));
    if (text.bytes > 0) memcpy(vocabulary->bytes + vocabulary->byte_count, text.data, text.bytes);
    vocabulary->byte_count = wanted;
    vocabulary->begins[id + 1] = wanted;
    return TT_OK;
}

struct entry {
    struct tt_span text;
    int32_t id;
};

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    size_t bytes = x->text.bytes < y->text.bytes ? x->text.bytes : y->text.bytes;
    int order = bytes > 0 ? memcmp(x->text.data, y->text.data, bytes) : 0;
    if (order != 0) return order;
    if (x->text.bytes != y->text.bytes) return x->text.bytes < y->text.bytes ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static tt_status add_node(struct tt_vocabulary *vocabulary, uint16_t depth, uint8_t byte)
{
    TT_TRY(tt_grow(&vocabulary->nodes, vocabulary->node_count, &vocabulary->node_capacity));
    vocabulary->nodes[vocabulary->node_count++] =
        (struct vocabulary_node){.token = VOCABULARY_NONE, .depth = depth, .byte = byte};
    if (depth > vocabulary->depth) vocabulary->depth = depth;
    return TT_OK;
}

/* `path`: the nodes of the bytes of the entry before; those below `common` bytes end here. */
static void end_nodes(struct tt_vocabulary *vocabulary, const uint32_t *path, size_t common, size_t length)
{
    for (size_t i = common; i < length; i++)
        vocabulary->nodes[path[i + 1]].end = (uint32_t)vocabulary->node_count;
}

static tt_status add_entries(struct tt_vocabulary *vocabulary, const struct entry *entries, size_t count,
                             uint32_t *path)
{
    struct tt_span before = {0};
    path[0] = 0;
    TT_TRY(add_node(vocabulary, 0, 0));
    for (size_t i = 0; i < count; i++) {
        struct tt_span text = entries[i].text;
        size_t common = 0;
        while (common < text.bytes && common < before.bytes && text.data[common] == before.data[common])
            common++;
        end_nodes(vocabulary, path, common, before.bytes);
        for (size_t b = common; b < text.bytes; b++) {
            path[b + 1] = (uint32_t)vocabulary->node_count;
            TT_TRY(add_node(vocabulary, (uint16_t)(b + 1), (uint8_t)text.data[b]));
            if (b == 0 && text.data[b] == ' ') vocabulary->space = path[1];
        }
        struct vocabulary_node *node = &vocabulary->nodes[path[text.bytes]];
        vocabulary->same[entries[i].id] = node->token;
        node->token = entries[i].id;
        before = text;
    }
    end_nodes(vocabulary, path, 0, before.bytes);
    vocabulary->nodes[0].end = (uint32_t)vocabulary->node_count;
    return TT_OK;
}

static bool has_invalid(struct tt_span text)
{
    for (size_t i = 0; i < text.bytes; i++)
        if ((uint8_t)text.data[i] >= 0xF8) return true;
    return false;
}

/* Text with bytes that UTF-8 never has stays out of the tree. */
static bool belongs(struct tt_span text, bool is_id)
{
    return text.bytes > 0 && text.bytes <= DEPTH_MAX && (is_id || !has_invalid(text));
}

/* Makes the tree of the bytes that were added. `is_id`: tokens that are no text. */
static tt_status finish(struct tt_vocabulary *vocabulary, const bool *is_id)
{
    tt_status status = TT_OK;
    size_t used = 0;
    struct entry *entries = tt_calloc((size_t)vocabulary->count + 1, sizeof *entries);
    uint32_t *path = tt_calloc(DEPTH_MAX + 1, sizeof *path);
    if (entries == NULL || path == NULL) status = TT_ERR_MEMORY;
    for (int64_t id = 0; id < vocabulary->count && status == TT_OK; id++) {
        struct tt_span text = vocabulary_bytes(vocabulary, (int32_t)id);
        vocabulary->same[id] = VOCABULARY_NONE;
        if (!belongs(text, is_id[id])) continue;
        if (text.bytes == 1) vocabulary->alphabet[(uint8_t)*text.data] = true;
        entries[used++] = (struct entry){text, (int32_t)id};
    }
    for (int b = 0xF8; b <= 0xFF; b++) vocabulary->alphabet[b] = true; /* of ids */
    if (status == TT_OK) {
        qsort(entries, used, sizeof *entries, compare);
        status = add_entries(vocabulary, entries, used, path);
    }
    tt_free(entries);
    tt_free(path);
    return status;
}

static tt_status add_id(struct tt_vocabulary *vocabulary, int64_t id)
{
    char bytes[VOCABULARY_ID_BYTES];
    vocabulary_id_bytes((int32_t)id, bytes);
    return add_bytes(vocabulary, id, (struct tt_span){bytes, sizeof bytes});
}

static tt_status add_tokens(struct tt_vocabulary *vocabulary, const struct tt_tokenizer *tokenizer,
                            bool *is_id)
{
    struct tt_str text = {0};
    tt_status status = tt_token_bytes_check(tokenizer, &vocabulary->drops_space);
    for (int64_t id = 0; id < vocabulary->count && status == TT_OK; id++) {
        bool known = tt_tokenizer_token(tokenizer, (int32_t)id) != NULL;
        is_id[id] = known && tt_tokenizer_is_special(tokenizer, (int32_t)id);
        tt_str_clear(&text);
        if (is_id[id]) {
            status = add_id(vocabulary, id);
            continue;
        }
        if (known) status = tt_token_bytes(tokenizer, (int32_t)id, &text);
        if (status == TT_OK)
            status = add_bytes(vocabulary, id, (struct tt_span){tt_str_text(&text), text.bytes});
    }
    tt_str_deinit(&text);
    return status;
}

tt_status tt_vocabulary_create(const struct tt_tokenizer *tokenizer, int64_t count,
                               struct tt_vocabulary **out)
{
    struct tt_vocabulary *vocabulary = NULL;
    TT_TRY(begin(count, &vocabulary));
    bool *is_id = tt_calloc((size_t)count + 1, sizeof *is_id);
    tt_status status = is_id != NULL ? add_tokens(vocabulary, tokenizer, is_id) : TT_ERR_MEMORY;
    if (status == TT_OK) status = finish(vocabulary, is_id);
    tt_free(is_id);
    if (status == TT_OK)
        *out = vocabulary;
    else
        tt_vocabulary_destroy(vocabulary);
    return status;
}

tt_status tt_vocabulary_of_texts(const struct tt_span *texts, size_t count, struct tt_vocabulary **out)
{
    struct tt_vocabulary *vocabulary = NULL;
    TT_TRY(begin((int64_t)count, &vocabulary));
    bool *is_id = tt_calloc(count + 1, sizeof *is_id);
    tt_status status = is_id != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t id = 0; id < count && status == TT_OK; id++) {
        is_id[id] = texts[id].bytes == 0;
        status = is_id[id] ? add_id(vocabulary, (int64_t)id) : add_bytes(vocabulary, (int64_t)id, texts[id]);
    }
    if (status == TT_OK) status = finish(vocabulary, is_id);
    tt_free(is_id);
    if (status == TT_OK)
        *out = vocabulary;
    else
        tt_vocabulary_destroy(vocabulary);
    return status;
}
