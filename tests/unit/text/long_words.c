/* text/bpe_impl.h: a long word that is merged window by window has the ids of the word merged as a whole, for
 * random merges, texts that repeat and texts that do not, byte-level vocabularies and those of characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "text/bpe_impl.h"
#include "text/tokenizer_impl.h"

enum { WORD = 300, TOKENIZERS = 1000, MERGES = 40 };

static struct tt_ids symbols;

static tt_status split(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t bytes)
{
    (void)scratch;
    symbols.count = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        length = bpe->byte_level ? 1 : tt_utf8_length((unsigned char)word[at]);
        int32_t id = bpe->byte_level ? bpe->byte_level_ids[(unsigned char)word[at]]
                                     : vocab_id(&bpe->vocab, word + at, length);
        if (id >= 0) assert_int_equal(tt_ids_append(&symbols, id), TT_OK);
        for (size_t i = 0; id < 0 && i < length; i++)
            assert_int_equal(tt_ids_append(&symbols, bpe->fallback_ids[(unsigned char)word[at + i]]), TT_OK);
    }
    return TT_OK;
}

/* A tokenizer of `letters` with random merges; `fallback`: of characters, and bytes for others. */
static struct tt_tokenizer *make(struct tt_rng rng, const char *const *letters, size_t letter_count,
                                 bool fallback)
{
    char tokens[64 + MERGES][256];
    size_t count = 0;
    struct tt_str json = {0}, merges = {0};
    assert_int_equal(
        tt_str_printf(&json,
                      "{\"pre_tokenizer\": %s, \"model\": {\"type\": \"BPE\", \"byte_fallback\": %s, "
                      "\"vocab\": {",
                      fallback ? "null"
                               : "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                 "\"trim_offsets\": true, \"use_regex\": false}",
                      fallback ? "true" : "false"),
        TT_OK);
    for (; count < letter_count; count++) snprintf(tokens[count], sizeof tokens[0], "%s", letters[count]);
    for (uint64_t i = 0; i < MERGES; i++) {
        /* The newest tokens are joined more often, so that some grow long. */
        const char *left = tokens[tt_rng_below(rng, 4 * i, count)],
                   *right = tokens[tt_rng_below(rng, 4 * i + 1, count)];
        if (tt_rng_below(rng, 4 * i + 2, 3) == 0) left = tokens[count - 1];
        char joined[512];
        snprintf(joined, sizeof joined, "%s%s", left, right);
        if (strlen(joined) >= sizeof tokens[0]) continue;
        assert_int_equal(
            tt_str_printf(&merges, "%s[\"%s\", \"%s\"]", merges.bytes > 0 ? ", " : "", left, right), TT_OK);
        bool known = false;
        for (size_t j = 0; j < count; j++) known = known || strcmp(tokens[j], joined) == 0;
        if (!known) memcpy(tokens[count++], joined, strlen(joined) + 1);
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tt_str_printf(&json, "%s\"%s\": %zu", i > 0 ? ", " : "", tokens[i], i), TT_OK);
    for (size_t i = 0; fallback && i < 256; i++)
        assert_int_equal(tt_str_printf(&json, ", \"<0x%02zX>\": %zu", i, count + i), TT_OK);
    assert_int_equal(tt_str_printf(&json, "}, \"merges\": [%s]}}", tt_str_text(&merges)), TT_OK);
    struct tt_tokenizer *tokenizer = NULL;
    if (tt_tokenizer_parse(json.data, json.bytes, "test.json", &tokenizer) != TT_OK)
        fail_msg("%s\n%s", json.data, tt_error_last()->message);
    tt_str_deinit(&json);
    tt_str_deinit(&merges);
    return tokenizer;
}

/* 0: random; 1: one letter; 2: a short text again and again; 3: runs of different lengths. */
static void fill(struct tt_rng rng, int kind, const char *const *letters, size_t letter_count,
                 struct tt_str *word)
{
    uint64_t period = 1 + tt_rng_below(rng, 0, 9), run = 0, letter = 0;
    tt_str_clear(word);
    for (uint64_t i = 0; i < WORD; i++) {
        if (kind == 0) letter = tt_rng_below(rng, i + 1, letter_count);
        if (kind == 2) letter = tt_rng_below(rng, i % period + 1, letter_count);
        if (kind == 3 && run-- == 0) {
            letter = tt_rng_below(rng, i + 1, letter_count);
            run = tt_rng_below(rng, i + WORD, 300);
        }
        assert_int_equal(tt_str_append_text(word, letters[letter]), TT_OK);
    }
}

/* Whether windows met. */
static bool compare(const struct bpe *bpe, const struct tt_str *word, size_t window)
{
    struct bpe_long merging = {0};
    struct tt_ids ids = {0};
    bool done = false;
    assert_true(bpe->parts_are_free);
    struct bpe_word parts = {bpe,        NULL,        &merging, &symbols,   split,
                             word->data, word->bytes, window,   window / 16};
    assert_int_equal(tt_ids_append(&ids, 77), TT_OK);
    assert_int_equal(bpe_encode_windows(&parts, &ids, &done), TT_OK);
    if (done) {
        assert_int_equal(split(bpe, NULL, word->data, word->bytes), TT_OK);
        assert_int_equal(bpe_merge_long(bpe, &merging, symbols.data, &symbols.count), TT_OK);
        assert_int_equal(ids.count, symbols.count + 1);
        assert_memory_equal(ids.data + 1, symbols.data, symbols.count * sizeof symbols.data[0]);
    } else {
        assert_int_equal(ids.count, 1);
    }
    assert_int_equal(ids.data[0], 77);
    bpe_long_deinit(&merging);
    tt_ids_deinit(&ids);
    return done;
}

static void run(const char *const *letters, size_t letter_count, bool fallback)
{
    struct tt_str word = {0};
    size_t met[2] = {0}, all = 0;
    for (uint64_t i = 0; i < TOKENIZERS; i++) {
        struct tt_rng rng = tt_rng_derive(tt_rng_make(i), "merges");
        struct tt_tokenizer *tokenizer =
            make(rng, letters, fallback ? letter_count - 1 : letter_count, fallback);
        for (int kind = 0; kind < 4; kind++) {
            fill(tt_rng_derive(rng, "word"), kind, letters, letter_count, &word);
            for (size_t window = 32; window <= 128; window *= 2)
                met[window > 32] += compare(&tokenizer->model, &word, window);
            all++;
        }
        tt_tokenizer_destroy(tokenizer);
    }
    /* Small windows have an overlap of two symbols, where a wrong joint shows; large ones nearly always meet.
     */
    if (met[0] < all / 3 || met[1] < 2 * all * 9 / 10) fail_msg("%zu and %zu of %zu", met[0], met[1], all);
    tt_str_deinit(&word);
    tt_ids_deinit(&symbols);
}

static void byte_level(void **state)
{
    static const char *const letters[] = {"a", "b", "c"};
    (void)state;
    run(letters, 3, false);
}

/* The last letter has no token: it becomes bytes, and a window never ends inside it. */
static void characters_and_bytes(void **state)
{
    static const char *const letters[] = {"a", "\xC3\xA9", "b", "\xE6\xBC\xA2"};
    (void)state;
    run(letters, 4, true);
}

/* A byte that has no token: the word is merged as a whole. */
static void unknown_bytes(void **state)
{
    static const char *const letters[] = {"a", "b", "c"};
    (void)state;
    struct tt_tokenizer *tokenizer = make(tt_rng_make(1), letters, 3, false);
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_ids ids = {0};
    enum { BYTES = 1 << 18 };
    char *text = tt_calloc(BYTES, 1);
    assert_non_null(text);
    memset(text, 'b', BYTES);
    text[BYTES / 2] = 'x';
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &scratch), TT_OK);
    assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, text, BYTES, false, &ids), TT_OK);
    size_t bytes = 0;
    for (size_t i = 0; i < ids.count; i++) bytes += strlen(tt_tokenizer_token(tokenizer, ids.data[i]));
    assert_int_equal(bytes, BYTES - 1);
    tt_ids_deinit(&ids);
    tt_free(text);
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
}

/* With a limit the first ids are kept and all are counted, of words of any length. */
static void limit(void **state)
{
    static const char *const letters[] = {"a", "b", "c"};
    (void)state;
    struct tt_tokenizer *tokenizer = make(tt_rng_make(2), letters, 3, false);
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_str word = {0};
    for (int i = 0; i < 1000; i++) {
        struct tt_str part = {0};
        fill(tt_rng_make((uint64_t)i), i % 4, letters, 3, &part);
        assert_int_equal(tt_str_append(&word, part.data, part.bytes), TT_OK);
        tt_str_deinit(&part);
    }
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &scratch), TT_OK);
    static const size_t lengths[] = {10, 3000, 300000};
    for (size_t i = 0; i < 3; i++) {
        struct tt_ids all = {0}, first = {.limit = 5};
        assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, word.data, lengths[i], false, &all), TT_OK);
        assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, word.data, lengths[i], false, &first),
                         TT_OK);
        assert_int_equal(all.beyond, 0);
        assert_int_equal(first.count, all.count < 5 ? all.count : 5);
        assert_int_equal(first.count + first.beyond, all.count);
        assert_memory_equal(first.data, all.data, first.count * sizeof all.data[0]);
        tt_ids_deinit(&all);
        tt_ids_deinit(&first);
    }
    tt_str_deinit(&word);
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level),
        cmocka_unit_test(characters_and_bytes),
        cmocka_unit_test(unknown_bytes),
        cmocka_unit_test(limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
