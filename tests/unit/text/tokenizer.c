/* text/tokenizer.h on small tokenizers made here: order of merges, added tokens,
 * hostile texts, the files beside tokenizer.json, streams, and running out of memory anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "text/tokenizer.h"

#define LETTERS "\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \" \": 4, \"x\": 5"
#define MODEL "\"model\": {\"type\": \"BPE\", \"vocab\": {" LETTERS "}, \"merges\": [\"a b\"]}"
#define ADDED(id, content, flags) "{\"id\": " #id ", \"content\": \"" content "\", " flags "}"
#define FLAGS(word, left, right, norm, special)                                                              \
    "\"single_word\": " #word ", \"lstrip\": " #left ", \"rstrip\": " #right ", \"normalized\": " #norm      \
    ", \"special\": " #special
#define PLAIN FLAGS(false, false, false, false, false)
#define SPECIAL FLAGS(false, false, false, false, true)

struct subject {
    struct tt_tokenizer *tokenizer;
    struct tt_tokenizer_scratch *scratch;
};

static struct subject make(const char *json)
{
    struct subject s = {0};
    if (tt_tokenizer_parse(json, strlen(json), "test.json", &s.tokenizer) != TT_OK) {
        fail_msg("%s\n%s", json, tt_error_last()->message);
    }
    assert_int_equal(tt_tokenizer_scratch_create(s.tokenizer, &s.scratch), TT_OK);
    return s;
}

static void drop(struct subject *s)
{
    tt_tokenizer_scratch_destroy(s->scratch);
    tt_tokenizer_destroy(s->tokenizer);
}

/* Ids as "1 2 3". */
static void assert_encodes(const struct subject *s, const char *text, bool add_special, const char *expected)
{
    struct tt_ids ids = {0};
    struct tt_str got = {0};
    if (tt_tokenizer_encode(s->tokenizer, s->scratch, text, strlen(text), add_special, &ids) != TT_OK) {
        fail_msg("'%s': %s", text, tt_error_last()->message);
    }
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(tt_str_printf(&got, i == 0 ? "%d" : " %d", ids.data[i]), TT_OK);
    }
    if (strcmp(tt_str_text(&got), expected) != 0)
        fail_msg("'%s': %s, not %s", text, tt_str_text(&got), expected);
    tt_ids_deinit(&ids);
    tt_str_deinit(&got);
}

/* Of one that is listed twice the later one counts, except that special stays special and a normal form stays one. */
static void listed_twice(void **state)
{
    (void)state;
    struct subject s = make(
        "{" MODEL
        ", \"normalizer\": {\"type\": \"Lowercase\"}, \"added_tokens\": [" ADDED(6, "Q", SPECIAL) ", " ADDED(
            6, "Q", PLAIN) ", " ADDED(7, "R",
                                      FLAGS(false, false, false, true, false)) ", " ADDED(7, "R",
                                                                                          PLAIN) "]}");
    struct tt_str text = {0};
    const int32_t ids[] = {6, 7};
    assert_true(tt_tokenizer_is_special(s.tokenizer, 6));
    assert_false(tt_tokenizer_is_special(s.tokenizer, 7));
    assert_int_equal(tt_tokenizer_decode(s.tokenizer, ids, 2, false, &text), TT_OK);
    assert_string_equal(text.data, "Q r");
    tt_str_deinit(&text);
    drop(&s);
}

static void vocabulary(void **state)
{
    (void)state;
    /* Ids with holes; an added token that the model has; ids of the others by the reference's rule. */
    struct subject s = make("{\"model\": {\"vocab\": {\"a\": 0, \"b\": 7, \"c\": 1000000}, \"merges\": []}, "
                            "\"added_tokens\": [" ADDED(7, "b", SPECIAL) ", " ADDED(3, "Q", PLAIN) "]}");
    assert_int_equal(tt_tokenizer_vocab_size(s.tokenizer), 1000001);
    assert_int_equal(tt_tokenizer_token_id(s.tokenizer, "b"), 7);
    assert_int_equal(tt_tokenizer_token_id(s.tokenizer, "c"), 1000000);
    assert_int_equal(tt_tokenizer_token_id(s.tokenizer, "Q"), 8);
    assert_int_equal(tt_tokenizer_token_id(s.tokenizer, "d"), -1);
    assert_string_equal(tt_tokenizer_token(s.tokenizer, 1000000), "c");
    assert_string_equal(tt_tokenizer_token(s.tokenizer, 8), "Q");
    static const int32_t none[] = {-1, 1, 6, 9, 999999, 1000001, INT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_null(tt_tokenizer_token(s.tokenizer, none[i]));
    assert_true(tt_tokenizer_is_special(s.tokenizer, 7));
    assert_false(tt_tokenizer_is_special(s.tokenizer, 8) || tt_tokenizer_is_special(s.tokenizer, 0));
    assert_int_equal(tt_tokenizer_bos_id(s.tokenizer), -1);
    assert_null(tt_tokenizer_chat_template(s.tokenizer));
    struct tt_str text = {0};
    const int32_t ids[] = {0, 7, 8}, odd[] = {-1, 0, 5, 7, INT32_MAX};
    assert_int_equal(tt_tokenizer_decode(s.tokenizer, ids, 3, false, &text), TT_OK);
    assert_string_equal(text.data, "a b Q"); /* no decoder: spaces */
    assert_int_equal(tt_tokenizer_decode(s.tokenizer, ids, 3, true, &text), TT_OK);
    assert_string_equal(text.data, "a Q");
    assert_int_equal(tt_tokenizer_decode(s.tokenizer, odd, 5, false, &text), TT_OK);
    assert_string_equal(text.data, "a b"); /* ids without a token add nothing */
    tt_str_deinit(&text);
    drop(&s);
}

/* The expected ids are the reference library's. */
static void added_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *added, *text, *ids;
    } cases[] = {
        {ADDED(6, "A", FLAGS(false, false, true, false, false)) ", " ADDED(7, " B", PLAIN), "A Bx", "6 7 5"},
        {ADDED(6, "A", FLAGS(false, false, true, false, false)) ", " ADDED(7, " ", PLAIN), "A   a",
         "6 4 4 4 0"},
        {ADDED(6, "\\n", FLAGS(false, true, true, false, false)), "a \n\n b", "0 6 1"},
        {ADDED(6, "\\n", FLAGS(false, false, true, false, false)), "a\n\nb", "0 6 6 1"},
        {ADDED(6, "\\n", FLAGS(false, true, false, false, false)), "a\n\nb", "0 6 6 1"},
        {ADDED(3, "ab", FLAGS(true, false, false, false, false)) ", " ADDED(1, "b", PLAIN), "xab ab",
         "5 3 4 3"},
        {ADDED(6, "th", FLAGS(true, false, false, false, false)) ", " ADDED(6, "th", PLAIN), "tha th a",
         "6 0 4 6 4 0"},
        {ADDED(6, "th", PLAIN) ", " ADDED(6, "th", FLAGS(true, false, false, false, false)), "tha th a",
         "0 4 6 4 0"},
        {ADDED(6, "<a>", PLAIN) ", " ADDED(7, "<a><b>", PLAIN) ", " ADDED(8, "><b>c", PLAIN),
         "<a><b>c<a><b<a>", "7 2 6 1 6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_str json = {0};
        assert_int_equal(tt_str_printf(&json, "{" MODEL ", \"added_tokens\": [%s]}", cases[i].added), TT_OK);
        struct subject s = make(json.data);
        assert_encodes(&s, cases[i].text, true, cases[i].ids);
        drop(&s);
        tt_str_deinit(&json);
    }
}

static void post_processors(void **state)
{
    (void)state;
    struct subject s = make("{" MODEL ", \"post_processor\": {\"type\": \"Sequence\", \"processors\": "
                            "[{\"type\": \"ByteLevel\"}, {\"type\": "
                            "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"s\", "
                            "\"type_id\": 0}}, {\"Sequence\": {\"id\": "
                            "\"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"e\", \"type_id\": 0}}], "
                            "\"pair\": [], \"special_tokens\": "
                            "{\"s\": {\"id\": \"s\", \"ids\": [9, 8], \"tokens\": []}, \"e\": {\"id\": "
                            "\"e\", \"ids\": [7], \"tokens\": "
                            "[]}}}]}}");
    assert_encodes(&s, "ab", true, "9 8 3 7");
    assert_encodes(&s, "ab", false, "3");
    assert_encodes(&s, "", true, "9 8 7");
    drop(&s);
    s = make(
        "{" MODEL
        ", \"post_processor\": {\"type\": \"RobertaProcessing\", \"sep\": [\"e\", 7], \"cls\": [\"s\", 9], "
        "\"trim_offsets\": true, \"add_prefix_space\": true}}");
    assert_encodes(&s, "ab", true, "9 3 7");
    drop(&s);
}

static void unknown_characters(void **state)
{
    (void)state;
    struct subject s = make("{" MODEL "}");
    assert_encodes(&s, "azb", true, "3"); /* without unk_token they vanish, and what is left merges */
    drop(&s);
    s = make("{\"model\": {\"vocab\": {\"a\": 0, \"u\": 1}, \"merges\": [], \"unk_token\": \"u\"}}");
    assert_encodes(&s, "azza", true, "0 1 1 0");
    drop(&s);
    s = make("{\"model\": {\"vocab\": {\"a\": 0, \"u\": 1}, \"merges\": [], \"unk_token\": \"u\", "
             "\"fuse_unk\": true}}");
    assert_encodes(&s, "azza", true, "0 1 0");
    drop(&s);
    /* Bytes of a character do not end a run of unknown ones: these come after, as in the reference. */
    s = make("{\"model\": {\"vocab\": {\"a\": 0, \"u\": 1, \"<0xC3>\": 2, \"<0xA9>\": 3}, \"merges\": [], "
             "\"unk_token\": \"u\", \"fuse_unk\": true, \"byte_fallback\": true}}");
    assert_encodes(&s, "z\u00e9a\u00e9", true, "2 3 1 0 2 3");
    drop(&s);
    s = make("{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"u\"}}");
    struct tt_ids ids = {0};
    assert_encodes(&s, "a", true, "0");
    assert_int_equal(tt_tokenizer_encode(s.tokenizer, s.scratch, "az", 2, true, &ids), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "unk_token"));
    assert_int_equal(ids.count, 0);
    assert_int_equal(tt_tokenizer_encode(s.tokenizer, s.scratch, "aa\xFF", 3, true, &ids), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "byte 2"));
    tt_ids_deinit(&ids);
    drop(&s);
}

/* A random BPE model over a few letters, and merging by the book: the first pair of the lowest rank, again
 * and again. */
enum { TOKENS = 120, NAME_BYTES = 24 };
struct book {
    char names[TOKENS][NAME_BYTES];
    int merges[TOKENS][3]; /* left, right, result */
    int token_count, merge_count;
};

static void make_book(struct book *book, struct tt_rng rng, const char *const *letters, int letter_count)
{
    *book = (struct book){0};
    for (int i = 0; i < letter_count; i++) strcpy(book->names[book->token_count++], letters[i]);
    for (uint64_t draw = 0; book->token_count < TOKENS && draw < 2000; draw++) {
        int left = (int)tt_rng_below(rng, 2 * draw, (uint64_t)book->token_count);
        int right = (int)tt_rng_below(rng, 2 * draw + 1, (uint64_t)book->token_count);
        char joined[2 * NAME_BYTES];
        snprintf(joined, sizeof joined, "%s%s", book->names[left], book->names[right]);
        int result = 0;
        while (result < book->token_count && strcmp(book->names[result], joined) != 0) result++;
        if (strlen(joined) >= NAME_BYTES || book->merge_count == TOKENS) continue;
        bool known = false;
        for (int i = 0; i < book->merge_count; i++) {
            known = known || (book->merges[i][0] == left && book->merges[i][1] == right);
        }
        if (known) continue;
        if (result == book->token_count) strcpy(book->names[book->token_count++], joined);
        memcpy(book->merges[book->merge_count++], (int[]){left, right, result}, sizeof book->merges[0]);
    }
}

static size_t merge_by_the_book(const struct book *book, int *symbols, size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX;
        int rank = book->merge_count;
        for (size_t i = 0; i + 1 < count; i++) {
            for (int m = 0; m < rank; m++) {
                if (book->merges[m][0] != symbols[i] || book->merges[m][1] != symbols[i + 1]) continue;
                rank = m;
                best = i;
            }
        }
        if (best == SIZE_MAX) return count;
        symbols[best] = book->merges[rank][2];
        memmove(symbols + best + 1, symbols + best + 2, (count - best - 2) * sizeof symbols[0]);
        count--;
    }
}

static void write_book(const struct book *book, const char *unk_token, struct tt_str *json)
{
    tt_str_clear(json);
    assert_int_equal(tt_str_append_text(json, "{\"model\": {\"vocab\": {"), TT_OK);
    for (int i = 0; i < book->token_count; i++) {
        assert_int_equal(tt_str_printf(json, "%s\"%s\": %d", i == 0 ? "" : ", ", book->names[i], i), TT_OK);
    }
    assert_int_equal(tt_str_append_text(json, "}, \"merges\": ["), TT_OK);
    for (int i = 0; i < book->merge_count; i++) {
        assert_int_equal(tt_str_printf(json, "%s[\"%s\", \"%s\"]", i == 0 ? "" : ", ",
                                       book->names[book->merges[i][0]], book->names[book->merges[i][1]]),
                         TT_OK);
    }
    assert_int_equal(tt_str_printf(json, "], \"unk_token\": %s}}", unk_token), TT_OK);
}

/* Short words, long words (the heap), words cut at U+2581 and words that may not be cut there, because merges
 * cross it or because an unknown character (z) before it vanishes. */
static void order_of_merges(void **state)
{
    (void)state;
    static const char *const letters[] = {"a", "b", "c", "\u2581"};
    struct tt_str json = {0}, text = {0};
    for (uint64_t model = 0; model < 40; model++) {
        struct tt_rng rng = tt_rng_derive_index(tt_rng_make(11), model);
        struct book book;
        int letter_count = model % 2 == 0 ? 3 : 4;
        make_book(&book, rng, letters, letter_count);
        if (model % 4 == 3) {
            /* No merge joins a letter to a following U+2581. */
            int kept = 0;
            for (int i = 0; i < book.merge_count; i++) {
                const char *left = book.names[book.merges[i][0]], *right = book.names[book.merges[i][1]];
                bool crosses =
                    (unsigned char)right[0] == 0xE2 && (unsigned char)left[strlen(left) - 1] != 0x81;
                if (!crosses) memmove(book.merges[kept++], book.merges[i], sizeof book.merges[0]);
            }
            book.merge_count = kept;
        }
        bool vanish = model % 8 < 4;
        write_book(&book, vanish ? "null" : "\"a\"", &json);
        struct subject s = make(json.data);
        for (uint64_t word = 0; word < 60; word++) {
            static int symbols[600];
            struct tt_rng draws = tt_rng_derive_index(rng, 1000 + word);
            size_t count = 1 + (size_t)tt_rng_below(draws, 0, word % 2 == 0 ? 12 : 600);
            tt_str_clear(&text);
            size_t drawn = count;
            count = 0;
            for (size_t i = 0; i < drawn; i++) {
                int letter = (int)tt_rng_below(draws, i + 1, (uint64_t)letter_count + 1);
                bool unknown = letter == letter_count;
                if (!unknown || !vanish) symbols[count++] = unknown ? 0 : letter;
                assert_int_equal(tt_str_append_text(&text, unknown ? "z" : letters[letter]), TT_OK);
            }
            struct tt_ids ids = {0};
            for (int again = 0; again < 2; again++) { /* the second time from the cache */
                ids.count = 0;
                assert_int_equal(
                    tt_tokenizer_encode(s.tokenizer, s.scratch, text.data, text.bytes, true, &ids), TT_OK);
                if (again == 0) count = merge_by_the_book(&book, symbols, count);
                assert_int_equal(ids.count, count);
                for (size_t i = 0; i < count; i++) assert_int_equal(ids.data[i], symbols[i]);
            }
            tt_ids_deinit(&ids);
        }
        drop(&s);
    }
    tt_str_deinit(&json);
    tt_str_deinit(&text);
}

/* A megabyte of one letter, of spaces and of added tokens' beginnings: anything quadratic would take hours.
 */
static void hostile_texts(void **state)
{
    (void)state;
    struct tt_str json = {0}, text = {0};
    assert_int_equal(tt_str_append_text(&json, "{\"added_tokens\": [{\"id\": 300, \"content\": \""), TT_OK);
    for (int i = 0; i < 3000; i++) assert_int_equal(tt_str_append_text(&json, "a"), TT_OK);
    assert_int_equal(
        tt_str_append_text(&json,
                           "b\", " PLAIN "}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                           "\"add_prefix_space\": false, \"trim_offsets\": true}, \"model\": {\"vocab\": "
                           "{\"a\": 0, \"aa\": 1, \"aaaa\": 2, \"aaaaaaaa\": 3, \"\u0120\": 4, "
                           "\"\u0120\u0120\": 5, \"b\": 6}, \"merges\": [\"a a\", \"aa aa\", "
                           "\"aaaa aaaa\", \"\u0120 \u0120\"]}}"),
        TT_OK);
    struct subject s = make(json.data);
    static const struct {
        char letter;
        size_t ids, bytes;
    } cases[] = {{'a', 131072, 1 << 20}, {' ', 524288, 1 << 20}, {'b', 1 << 20, 1 << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_str_clear(&text);
        for (size_t k = 0; k < cases[i].bytes; k++)
            assert_int_equal(tt_str_append_char(&text, cases[i].letter), TT_OK);
        struct tt_ids ids = {0};
        double start = tt_clock_seconds();
        assert_int_equal(tt_tokenizer_encode(s.tokenizer, s.scratch, text.data, text.bytes, true, &ids),
                         TT_OK);
        assert_true(tt_clock_seconds() - start < 30);
        assert_int_equal(ids.count, cases[i].ids);
        tt_ids_deinit(&ids);
    }
    drop(&s);
    tt_str_deinit(&json);
    tt_str_deinit(&text);
}

/* A folder of files for tt_tokenizer_load; removed by remove_folder. */
static char *make_folder(const char *const files[][2], size_t count)
{
    char *folder = tt_strdup(TT_BUILD_DIR "/test_tokenizer_XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < count; i++) {
        char *path = tt_path_join(folder, files[i][0]);
        assert_int_equal(tt_file_write_atomic(path, files[i][1], strlen(files[i][1])), TT_OK);
        tt_free(path);
    }
    return folder;
}

static void remove_folder(char *folder)
{
    assert_int_equal(tt_dir_remove(folder), TT_OK);
    tt_free(folder);
}

/* Tokens of tokenizer_config.json that are none. */
static void tokens_beside(void **state)
{
    static const char *const cases[][2] = {
        {"{\"additional_special_tokens\": [[]]}", "a token is neither a text nor an object"},
        {"{\"extra_special_tokens\": [{\"special\": true}]}", "'extra_special_tokens[0].content' is missing"},
        {"{\"added_tokens_decoder\": {\"seven\": {\"content\": \"x\"}}}",
         "'seven' is not an id with its token"},
        {"{\"added_tokens_decoder\": [1]}", "added_tokens_decoder is not an object"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *files[2][2] = {{"tokenizer.json", "{" MODEL "}"}, {"tokenizer_config.json", cases[i][0]}};
        char *folder = make_folder((const char *const(*)[2])files, 2);
        struct tt_tokenizer *tokenizer = NULL;
        assert_int_equal(tt_tokenizer_load(folder, &tokenizer), TT_ERR_DATA);
        if (strstr(tt_error_last()->message, cases[i][1]) == NULL)
            fail_msg("%s, not %s", tt_error_last()->message, cases[i][1]);
        remove_folder(folder);
    }
}

static void configuration(void **state)
{
    (void)state;
    static const char json[] =
        "{" MODEL ", \"added_tokens\": [" ADDED(6, "<s>", SPECIAL) ", " ADDED(7, "</s>", SPECIAL) "]}";
    static const struct {
        const char *config, *map, *jinja;
        tt_status status;
        int32_t bos, eos, pad;
        const char *template; /* of a refusal: its message */
    } cases[] = {
        {NULL, NULL, NULL, TT_OK, -1, -1, -1, NULL},
        {"{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\", \"lstrip\": false}, \"pad_token\": "
         "\"[PAD]\", "
         "\"chat_template\": \"T\"}",
         NULL, NULL, TT_OK, 6, 7, 8, "T"},
        {"{\"bos_token\": null, \"eos_token\": \"a\"}",
         "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"pad_token\": \"c\"}", "", TT_OK, 6, 7, 2, ""},
        {"{\"chat_template\": [{\"name\": \"tool\", \"template\": \"A\"}, {\"name\": \"default\", "
         "\"template\": \"B\"}]}",
         NULL, NULL, TT_OK, -1, -1, -1, "B"},
        {"{\"chat_template\": \"A\"}", NULL, "J", TT_OK, -1, -1, -1, "J"},
        {"{\"eos_token\": \"nowhere\"}", NULL, NULL, TT_OK, -1, 8, -1, NULL},
        {"{\"eos_token\": 7}", NULL, NULL, TT_ERR_DATA, 0, 0, 0,
         "tokenizer_config.json: a token is neither a text nor an object"},
        {"{\"chat_template\": 7}", NULL, NULL, TT_ERR_DATA, 0, 0, 0,
         "tokenizer_config.json: chat_template must be a string or a list"},
        {"{\"chat_template\": [7]}", NULL, NULL, TT_ERR_DATA, 0, 0, 0,
         "tokenizer_config.json: chat_template[0] is not an object"},
        {"[]", NULL, NULL, TT_ERR_DATA, 0, 0, 0, "tokenizer_config.json: not a JSON object"},
        {"{", NULL, NULL, TT_ERR_DATA, 0, 0, 0, "not valid JSON"},
        {NULL, NULL, "\xFF", TT_ERR_DATA, 0, 0, 0, "chat_template.jinja: not UTF-8 text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *files[4][2] = {{"tokenizer.json", json}};
        size_t count = 1;
        if (cases[i].config != NULL)
            memcpy(files[count++], (const char *[2]){"tokenizer_config.json", cases[i].config},
                   sizeof files[0]);
        if (cases[i].map != NULL)
            memcpy(files[count++], (const char *[2]){"special_tokens_map.json", cases[i].map},
                   sizeof files[0]);
        if (cases[i].jinja != NULL)
            memcpy(files[count++], (const char *[2]){"chat_template.jinja", cases[i].jinja}, sizeof files[0]);
        char *folder = make_folder((const char *const(*)[2])files, count);
        struct tt_tokenizer *tokenizer = NULL;
        tt_status status = tt_tokenizer_load(folder, &tokenizer);
        if (status != cases[i].status) fail_msg("case %zu: %s", i, tt_status_name(status));
        if (status == TT_OK) {
            assert_int_equal(tt_tokenizer_bos_id(tokenizer), cases[i].bos);
            assert_int_equal(tt_tokenizer_eos_id(tokenizer), cases[i].eos);
            assert_int_equal(tt_tokenizer_pad_id(tokenizer), cases[i].pad);
            const char *template = tt_tokenizer_chat_template(tokenizer);
            if (cases[i].template == NULL)
                assert_null(template);
            else
                assert_string_equal(template, cases[i].template);
        } else {
            assert_null(tokenizer);
            if (strstr(tt_error_last()->message, cases[i].template) == NULL)
                fail_msg("%s, not %s", tt_error_last()->message, cases[i].template);
        }
        tt_tokenizer_destroy(tokenizer);
        remove_folder(folder);
    }
    struct tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tt_tokenizer_load(TT_BUILD_DIR "/nowhere", &tokenizer), TT_ERR_DATA);
}

/* Pieces of a stream are whole characters and add up to the decoded text. */
static void streams(void **state)
{
    (void)state;
    static const char *const jsons[] = {
        "{\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {\"a\": 0, \"\u00f0\": 1, "
        "\"\u0141\": 2, "
        "\"\u013a\": 3, \"\u0122\": 4, \"\u0120b\": 5}, \"merges\": []}}",
        "{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
        "{\"String\": "
        "\"\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
        "\"Strip\", "
        "\"content\": \" \", \"start\": 1, \"stop\": 0}]}, \"model\": {\"vocab\": {\"a\": 0, \"<0xF0>\": 1, "
        "\"<0x9F>\": 2, "
        "\"<0x98>\": 3, \"<0x80>\": 4, \"\u2581b\": 5}, \"merges\": []}}",
    };
    static const int32_t ids[] = {5, 0, 1, 2, 3, 4, 5, 99, 5, 0, 1, 2, 3, 4, 1, 2, 3, 4, 0, 1, 2};
    enum { COUNT = sizeof ids / sizeof ids[0], WHOLE = 19 };
    for (size_t i = 0; i < 2; i++) {
        struct subject s = make(jsons[i]);
        struct tt_tokenizer_stream stream = {.skip_special = true};
        struct tt_str shown = {0}, whole = {0};
        for (size_t k = 0; k < COUNT; k++) {
            size_t before = shown.bytes;
            assert_int_equal(tt_tokenizer_stream_push(s.tokenizer, &stream, ids[k], &shown), TT_OK);
            if (ids[k] == 1 || ids[k] == 2 || ids[k] == 3) assert_int_equal(shown.bytes, before);
            if (ids[k] == 4) assert_memory_equal(shown.data + shown.bytes - 4, "\U0001f600", 4);
        }
        int32_t known[COUNT];
        size_t count = 0;
        for (size_t k = 0; k < WHOLE; k++) {
            if (ids[k] != 99) known[count++] = ids[k];
        }
        assert_int_equal(tt_tokenizer_decode(s.tokenizer, known, count, true, &whole), TT_OK);
        assert_string_equal(shown.data, whole.data);
        assert_int_equal(tt_tokenizer_stream_finish(s.tokenizer, &stream, &shown), TT_OK);
        assert_int_equal(strncmp(shown.data, whole.data, whole.bytes), 0);
        assert_memory_equal(shown.data + whole.bytes, "\uFFFD", 3);
        tt_tokenizer_stream_deinit(&stream);
        tt_str_deinit(&shown);
        tt_str_deinit(&whole);
        drop(&s);
    }
}

/* Everything once, with the nth allocation failing: TT_ERR_MEMORY, no crash, nothing left behind. */
static tt_status use_everything(void)
{
    static const char json[] = "{\"added_tokens\": [" ADDED(9, "<s>", SPECIAL) ", " ADDED(
        10, "Yes",
        FLAGS(true, true, true, true, false)) "], "
                                              "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": "
                                              "[{\"type\": \"NFC\"}, {\"type\": \"Replace\", \"pattern\": "
                                              "{\"Regex\": \"x+\"}, \"content\": \"b\"}, {\"type\": "
                                              "\"Lowercase\"}]}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
                                              "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
                                              "{\"Regex\": \"[\\\\p{L}&&[^z]]+\"}, \"behavior\": "
                                              "\"MergedWithNext\", \"invert\": false}, {\"type\": "
                                              "\"Metaspace\", \"replacement\": \"_\"}]}, \"decoder\": "
                                              "{\"type\": \"Sequence\", \"decoders\": [{\"type\": "
                                              "\"Replace\", \"pattern\": {\"Regex\": \"a|b\"}, \"content\": "
                                              "\"c\"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, "
                                              "\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, "
                                              "\"ab\": 3, \"_\": 4, \"u\": 5, \"<0xC3>\": 6, \"<0xA9>\": 7, "
                                              "\"e\": 8}, \"merges\": [\"a b\"], \"unk_token\": \"u\", "
                                              "\"byte_fallback\": true}, \"post_processor\": {\"type\": "
                                              "\"BertProcessing\", \"sep\": [\"a\", 0], \"cls\": [\"b\", "
                                              "1]}}";
    static const char text[] =
        "<s>abxxe\u0301 yes Yes ab z abababababababababababababababababababababababababababab";
    struct subject s = {0};
    struct tt_ids ids = {0};
    struct tt_str decoded = {0};
    struct tt_tokenizer_stream stream = {0};
    tt_status status = TT_OK;
    TT_GO(tt_tokenizer_parse(json, sizeof json - 1, "test.json", &s.tokenizer));
    TT_GO(tt_tokenizer_scratch_create(s.tokenizer, &s.scratch));
    TT_GO(tt_tokenizer_encode(s.tokenizer, s.scratch, text, sizeof text - 1, true, &ids));
    TT_GO(tt_tokenizer_decode(s.tokenizer, ids.data, ids.count, true, &decoded));
    TT_GO(tt_tokenizer_stream_push(s.tokenizer, &stream, ids.data[0], &decoded));
out:
    tt_tokenizer_stream_deinit(&stream);
    tt_str_deinit(&decoded);
    tt_ids_deinit(&ids);
    drop(&s);
    return status;
}

static void out_of_memory(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live(), before = tt_alloc_count();
    assert_int_equal(use_everything(), TT_OK);
    uint64_t count = tt_alloc_count() - before;
    assert_true(count > 50);
    for (uint64_t nth = 1; nth <= count; nth++) {
        tt_alloc_fail_at(nth);
        tt_status status = use_everything();
        tt_alloc_fail_at(0);
        if (status != TT_ERR_MEMORY) fail_msg("allocation %d: %s", (int)nth, tt_status_name(status));
        assert_int_equal(tt_alloc_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {

        cmocka_unit_test(vocabulary),         cmocka_unit_test(listed_twice),
        cmocka_unit_test(added_tokens),       cmocka_unit_test(post_processors),
        cmocka_unit_test(unknown_characters), cmocka_unit_test(order_of_merges),
        cmocka_unit_test(hostile_texts),      cmocka_unit_test(configuration),
        cmocka_unit_test(tokens_beside),      cmocka_unit_test(streams),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
