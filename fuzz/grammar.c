/* Grammars: a source from the fuzzer is refused or compiled within its bounds; texts that are drawn from its masks
 * fit, can always go on until they may end, and end within a number of tokens or not at all. words: src/grammar
 * links: tt_grammar */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

enum { BYTES = 256, TOKENS_MAX = 200 };

static void must(bool holds)
{
    if (!holds) abort();
}

static struct tt_vocabulary *make_vocabulary(void)
{
    static char bytes[BYTES];
    struct tt_span texts[BYTES];
    struct tt_vocabulary *vocabulary = NULL;
    for (int b = 0; b < BYTES; b++) {
        bytes[b] = (char)b;
        texts[b] = (struct tt_span){bytes + b, 1};
    }
    must(tt_vocabulary_of_texts(texts, BYTES, &vocabulary) == TT_OK);
    return vocabulary;
}

/* The `wanted`-th token of the mask, around its end; -1: it is empty. */
static int32_t pick(const uint32_t *words, uint32_t wanted)
{
    int32_t last = -1;
    uint32_t count = 0;
    for (int32_t t = 0; t < BYTES; t++) count += words[t / 32] >> t % 32 & 1;
    for (int32_t t = 0; t < BYTES && count > 0; t++) {
        if ((words[t / 32] >> t % 32 & 1) == 0) continue;
        last = t;
        if (wanted % count == 0) return t;
        wanted--;
    }
    return last;
}

static void draw(struct tt_grammar *grammar, uint32_t seed)
{
    struct tt_grammar_matcher *matcher = NULL;
    must(tt_grammar_matcher_create(grammar, &matcher) == TT_OK);
    for (int i = 0; i < TOKENS_MAX && !tt_grammar_matcher_is_over(matcher); i++) {
        const uint32_t *words;
        bool fits;
        must(tt_grammar_matcher_mask(matcher, &words) == TT_OK);
        seed = seed * 1664525u + 1013904223u;
        int32_t token = pick(words, seed >> 8);
        must(token >= 0);
        must(tt_grammar_matcher_advance(matcher, token, &fits) == TT_OK && fits);
    }
    must(!tt_grammar_matcher_is_over(matcher) || tt_grammar_matcher_may_end(matcher));
    tt_grammar_matcher_destroy(matcher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tt_vocabulary *vocabulary;
    struct tt_grammar *grammar = NULL;
    if (vocabulary == NULL) vocabulary = make_vocabulary();
    /* A separate block, so that a sanitizer detects a read beyond its end. */
    char *text = malloc(size + 1);
    if (text == NULL) abort();
    memcpy(text + 1, data, size);
    tt_status status = tt_grammar_compile((struct tt_span){text + 1, size}, vocabulary, &grammar);
    must(status == TT_OK || status == TT_ERR_USAGE || status == TT_ERR_DATA);
    if (status == TT_OK) {
        size_t steps, bytes;
        tt_grammar_cost(grammar, &steps, &bytes);
        must(steps <= 6000000 && bytes <= 32u << 20);
        for (uint32_t seed = 1; seed < 5; seed++) draw(grammar, seed);
    }
    tt_grammar_release(grammar);
    tt_error_clear();
    free(text);
    return 0;
}
