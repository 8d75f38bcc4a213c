/* The bytes of a word that each of its ids stands for. Nearly always the ids' tokens, one after the other, are the
 * word: then they are read off it, in the time of a copy. Characters without a token, prefixes and suffixes need the
 * word to be split and merged again, with the origin of each symbol. */
#include <string.h>

#include "text/bpe_impl.h"

static tt_status add_span(struct tt_ranges *spans, size_t begin, size_t end)
{
    return tt_ranges_append(spans, (struct tt_byte_range){(uint32_t)begin, (uint32_t)end});
}

/* Bytes of the word at `at` that the token is, 0: none. */
static size_t matched_bytes(const struct bpe *bpe, struct tt_span word, size_t at,
                            const struct vocab_token *token)
{
    size_t from = at;
    for (size_t i = 0; i < token->bytes; at++) {
        if (at == word.bytes) return 0;
        bool blank = bpe->blank_is_metaspace && word.data[at] == ' ' && token->bytes - i >= 3 &&
                     memcmp(token->data + i, TT_METASPACE, 3) == 0;
        if (!blank && token->data[i] != word.data[at]) return 0;
        i += blank ? 3 : 1;
    }
    return at - from;
}

/* A character of a token in ByteLevel's alphabet is one byte. */
static size_t count_characters(const struct vocab_token *token)
{
    size_t count = 0;
    for (size_t i = 0; i < token->bytes; i++) count += ((unsigned char)token->data[i] & 0xC0) != 0x80;
    return count;
}

static bool has_all_bytes(const struct bpe *bpe, struct tt_span word)
{
    for (size_t i = 0; i < word.bytes; i++)
        if (bpe->byte_level_ids[(unsigned char)word.data[i]] < 0) return false;
    return true;
}

/* False where the tokens are not the word, or are it in two ways. */
static tt_status read_spans(const struct bpe *bpe, struct tt_span word, const struct tt_ids *ids,
                            struct tt_ranges *spans, bool *done)
{
    size_t at = 0;
    *done = false;
    if (bpe->prefix != NULL || bpe->suffix != NULL) return TT_OK;
    if (bpe->byte_level && !has_all_bytes(bpe, word)) return TT_OK;
    for (size_t i = 0; i < ids->count; i++) {
        int32_t id = ids->data[i];
        const struct vocab_token *token = id == bpe->unk_id ? NULL : vocab_find(&bpe->vocab, id);
        if (token == NULL || at == word.bytes) return TT_OK;
        size_t bytes = bpe->byte_level ? count_characters(token) : matched_bytes(bpe, word, at, token);
        if (!bpe->byte_level && bpe->byte_fallback && bpe->fallback_ids[(unsigned char)word.data[at]] == id) {
            if (bytes > 1) return TT_OK;
            bytes = 1;
        }
        if (bytes == 0) return TT_OK;
        TT_TRY(add_span(spans, at, at + bytes));
        at += bytes;
    }
    *done = at == word.bytes;
    return TT_OK;
}

/* The same as bpe_encode's encode_word, of the bytes begin .. end - 1. */
static tt_status merge_spans(const struct bpe *bpe, struct bpe_scratch *s, struct tt_span word, size_t begin,
                             size_t end, struct tt_ranges *spans)
{
    s->spans = &s->symbol_spans;
    s->spans->count = 0;
    tt_status status = bpe_split_word(bpe, s, word.data + begin, end - begin);
    s->spans = NULL;
    TT_TRY(status);
    const struct tt_byte_range *symbols = s->symbol_spans.data;
    size_t count = s->symbols.count, all = count;
    if (count == 0) return TT_OK;
    TT_TRY(bpe_merge_long(bpe, &s->merging, s->symbols.data, &count));
    for (size_t i = 0; i < count; i++) {
        size_t first = s->merging.starts[i], last = (i + 1 < count ? s->merging.starts[i + 1] : all) - 1;
        TT_TRY(add_span(spans, begin + symbols[first].begin, begin + symbols[last].end));
    }
    return TT_OK;
}

/* The same as bpe_encode's encode_parts. */
static tt_status merge_parts(const struct bpe *bpe, struct bpe_scratch *s, struct tt_span word,
                             struct tt_ranges *spans)
{
    size_t start = 0, at = 0, width;
    while (at < word.bytes) {
        if (bpe_metaspace_bytes(bpe, word.data, word.bytes, at) == 0) {
            at++;
            continue;
        }
        if (at > start) {
            TT_TRY(merge_spans(bpe, s, word, start, at, spans));
            start = at;
        }
        while (at < word.bytes && (width = bpe_metaspace_bytes(bpe, word.data, word.bytes, at)) > 0)
            at += width;
    }
    return start < word.bytes ? merge_spans(bpe, s, word, start, word.bytes, spans) : TT_OK;
}

/* An unknown token may come after bytes of later characters, as in the reference: begins and ends do not decrease
 * all the same. */
static void sort_spans(struct tt_ranges *spans)
{
    for (size_t i = 1; i < spans->count; i++) {
        struct tt_byte_range *span = &spans->data[i], before = span[-1];
        if (span->begin < before.begin) span->begin = before.begin;
        if (span->end < before.end) span->end = before.end;
    }
}

tt_status bpe_spans(const struct bpe *bpe, struct bpe_scratch *s, struct tt_span word,
                    const struct tt_ids *ids, struct tt_ranges *spans)
{
    bool done;
    tt_status status;
    spans->count = 0;
    TT_TRY(read_spans(bpe, word, ids, spans, &done));
    if (done) return TT_OK;
    spans->count = 0;
    int32_t whole = bpe_whole_word_id(bpe, s, word.data, word.bytes, &status);
    TT_TRY(status);
    if (whole >= 0)
        TT_TRY(add_span(spans, 0, word.bytes));
    else if (bpe->cuts_at_metaspace)
        TT_TRY(merge_parts(bpe, s, word, spans));
    else
        TT_TRY(merge_spans(bpe, s, word, 0, word.bytes, spans));
    sort_spans(spans);
    if (spans->count == ids->count) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "a word of %zu ids has %zu spans", ids->count, spans->count);
}
