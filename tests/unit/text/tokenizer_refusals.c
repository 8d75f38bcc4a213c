/* text/tokenizer.h: every refusal of tokenizer.json, and of what is encoded with it, has a row here. The refusals of
 * patterns are in pattern.c, those of the files beside it in tokenizer.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "text/added.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define LETTERS "\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3"
#define MODEL "\"model\": {\"type\": \"BPE\", \"vocab\": {" LETTERS "}, \"merges\": [\"a b\"]}"
#define BPE(vocab, merges, more)                                                                             \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {" vocab "}, \"merges\": [" merges "]" more "}}"
#define STEP(part, step) "{" MODEL ", \"" part "\": {" step "}}"
#define FLAGS(norm)                                                                                          \
    "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": " norm                    \
    ", \"special\": false"
#define ADDED(id, content, norm) "{\"id\": " #id ", \"content\": \"" content "\", " FLAGS(norm) "}"
#define SPLIT(pattern, behavior)                                                                             \
    STEP("pre_tokenizer",                                                                                    \
         "\"type\": \"Split\", \"pattern\": " pattern ", \"behavior\": \"" behavior "\", \"invert\": false")
#define TEMPLATE(single, specials)                                                                           \
    STEP("post_processor",                                                                                   \
         "\"type\": \"TemplateProcessing\", \"single\": [" single "], \"special_tokens\": {" specials "}")
#define AROUND "\"type\": \"BertProcessing\", \"sep\": [\"a\", 0], \"cls\": [\"b\", 1]"

static int failed;

static void expect_refused(const char *json, tt_status expected, const char *message)
{
    struct tt_tokenizer *tokenizer = NULL;
    tt_status status = tt_tokenizer_parse(json, strlen(json), "test.json", &tokenizer);
    const char *said = status == TT_OK ? "nothing" : tt_error_last()->message;
    if (status != expected || strstr(said, message) == NULL)
        print_error("%.1000s: %s (%s), not %s\n", json, said, tt_status_name(status), message), failed++;
    tt_tokenizer_destroy(tokenizer);
}

struct row {
    const char *json, *message;
};

static void malformed(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"[]", "test.json: not a JSON object"},
        {"{", "not valid JSON"},
        {"{}", "test.json: 'model' is missing"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": []}}", "'model.vocab' must be an object, not a list"},
        {BPE("\"a\": -1", "", ""), "test.json: the id of token 'a' is not an integer from 0 to 2^31 - 2"},
        {BPE("\"a\": 2147483647", "", ""), "the id of token 'a' is not an integer"},
        {BPE("\"a\": 1.5", "", ""), "the id of token 'a' is not an integer"},
        {BPE("\"a\": 1, \"b\": 1", "", ""), "tokens 'a' and 'b' share id 1"},
        {BPE("\"a\": 1, \"a\": 2", "", ""), "not valid JSON: duplicate key \"a\""},
        {BPE(LETTERS, "\"a z\"", ""), "merge 0 refers to 'z', which is not in the vocabulary"},
        {BPE(LETTERS, "\"b a\"", ""), "merge 0 gives 'ba', which is not in the vocabulary"},
        {BPE(LETTERS, "\"ab\"", ""), "merge 0: 'ab' is not two tokens and one space"},
        {BPE(LETTERS, "\"a b c\"", ""), "merge 0: 'a b c' is not two tokens and one space"},
        {BPE(LETTERS, "[\"a\"]", ""), "test.json: merge 0 is neither \"a b\" nor [\"a\", \"b\"]"},
        {BPE(LETTERS, "\"a b\", 7", ""), "merge 1 is neither \"a b\" nor [\"a\", \"b\"]"},
        {BPE(LETTERS, "\"a b\"", ", \"continuing_subword_prefix\": \"##\""),
         "merge 0: 'b' is not longer than continuing_subword_prefix"},
        {"{" MODEL ", \"added_tokens\": 6}", "'added_tokens' must be a list"},
        {"{" MODEL ", \"added_tokens\": [6]}", "test.json: an added token is not an object"},
        {"{" MODEL ", \"added_tokens\": [{\"id\": 6}]}",
         "'added_tokens[0].content' is missing; it must be a string"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 2}, \"merges\": []}, \"added_tokens\": [" ADDED(
             1, "Q", "false") ", " ADDED(2, "R", "false") "]}",
         "tokens 'a' and 'R' share id 2"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 2147483646}, \"merges\": []}, \"added_tokens\": "
         "[" ADDED(1, "a", "false") "]}",
         "test.json: no id is left for 'a'"},
        {"{" MODEL ", \"normalizer\": 3}", "test.json: a step is not an object"},
        {SPLIT("{\"Regex\": \"a\"}", "Sideways"), "test.json: unknown split behavior 'Sideways'"},
        {SPLIT("{\"Regex\": 1}", "Isolated"),
         "test.json: a pattern must be {\"String\": ...} or {\"Regex\": ...}"},
        {SPLIT("{\"Regex\": \"a\", \"String\": \"a\"}", "Isolated"),
         "a pattern must be {\"String\": ...} or"},
        {STEP("pre_tokenizer", "\"type\": \"Metaspace\", \"replacement\": \"ab\""),
         "test.json: replacement must be one character, not 'ab'"},
        {STEP("pre_tokenizer", "\"type\": \"CharDelimiterSplit\", \"delimiter\": \"\""),
         "delimiter must be one character, not ''"},
        {STEP("pre_tokenizer",
              "\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\""),
         "test.json: unknown prepend_scheme 'last'"},
        {STEP("pre_tokenizer",
              "\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false"),
         "add_prefix_space does not match prepend_scheme 'always'"},
        {STEP("decoder", "\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false"),
         "add_prefix_space does not match prepend_scheme 'always'"},
        {STEP("decoder", "\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0"),
         "test.json: Strip with a negative count"},
        {STEP("decoder", "\"type\": \"Strip\", \"content\": \" \", \"start\": 0, \"stop\": -1"),
         "test.json: Strip with a negative count"},
        {TEMPLATE("{\"SpecialToken\": {\"id\": \"<s>\"}}", ""),
         "test.json: the post-processor uses '<s>' and does not list it"},
        {TEMPLATE("{\"SpecialToken\": {\"id\": \"<s>\"}}", "\"<s>\": {\"ids\": [0.5]}"),
         "test.json: the post-processor has an invalid id"},
        {TEMPLATE("{\"SpecialToken\": {\"id\": \"<s>\"}}", "\"<s>\": {\"ids\": [2147483648]}"),
         "test.json: the post-processor has an invalid id"},
        {TEMPLATE("{}", ""), "piece 0 of the template is neither a SpecialToken nor a Sequence"},
        {TEMPLATE("{\"Sequence\": {\"id\": \"B\"}}", ""), "the template for one text uses sequence 'B'"},
        {STEP("post_processor", "\"type\": \"RobertaProcessing\", \"sep\": [\"a\", -1], \"cls\": [\"b\", 1]"),
         "the post-processor has an invalid id"},
        {STEP("post_processor", "\"type\": \"RobertaProcessing\", \"sep\": [\"a\", 0], \"cls\": [\"b\"]"),
         "test.json: cls must be [token, id]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_refused(rows[i].json, TT_ERR_DATA, rows[i].message);
    assert_int_equal(failed, 0);
}

static void unsupported(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"version\": \"2.0\", " MODEL "}", "test.json: tokenizer version '2.0'; only 1.0 is supported"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}",
         "test.json: a model of type 'Unigram'; only BPE is supported"},
        {BPE(LETTERS, "", ", \"dropout\": 0.1"), "test.json: dropout 0.1 would make every encoding random"},
        {STEP("normalizer", "\"type\": \"Precompiled\", \"precompiled_charsmap\": \"\""),
         "test.json: normalizer 'Precompiled' is not supported"},
        {STEP("pre_tokenizer", "\"type\": \"UnicodeScripts\""),
         "pre-tokenizer 'UnicodeScripts' is not supported"},
        {SPLIT("{\"Regex\": \"(\"}", "Isolated"), "a group without an end"},
        {STEP("decoder", "\"type\": \"CTC\""), "test.json: decoder 'CTC' is not supported"},
        {STEP("post_processor", "\"type\": \"Other\""), "test.json: post-processor 'Other' is not supported"},
        {STEP("post_processor", "\"type\": \"Sequence\", \"processors\": [{" AROUND "}, {" AROUND "}]"),
         "more than one post-processor that adds tokens"},
        {"{" MODEL ", \"normalizer\": {\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}, "
         "\"added_tokens\": [" ADDED(6, "\\n", "true") "]}",
         "the normalizer leaves nothing of added token '\\x0a'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_refused(rows[i].json, TT_ERR_UNSUPPORTED, rows[i].message);
    assert_int_equal(failed, 0);
}

/* Sequences within each other, and steps in a row, are read to a limit, not to the end of the stack or of an array. */
static void limits(void **state)
{
    (void)state;
    static const struct {
        const char *part, *list, *step, *many;
    } parts[] = {
        {"normalizer", "normalizers", "{\"type\": \"NFC\"}", "test.json: too many normalizers"},
        {"pre_tokenizer", "pretokenizers", "{\"type\": \"Whitespace\"}",
         "test.json: too many pre-tokenizers"},
        {"decoder", "decoders", "{\"type\": \"Fuse\"}", "test.json: too many decoders"},
        {"post_processor", "processors", "{\"type\": \"ByteLevel\"}", NULL},
    };
    struct tt_str json = {0};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        tt_str_clear(&json);
        assert_int_equal(tt_str_printf(&json, "{" MODEL ", \"%s\": ", parts[i].part), TT_OK);
        for (int depth = 0; depth < 100; depth++)
            assert_int_equal(tt_str_printf(&json, "{\"type\": \"Sequence\", \"%s\": [", parts[i].list),
                             TT_OK);
        for (int depth = 0; depth < 100; depth++) assert_int_equal(tt_str_append_text(&json, "]}"), TT_OK);
        assert_int_equal(tt_str_append_text(&json, "}"), TT_OK);
        expect_refused(json.data, TT_ERR_UNSUPPORTED, "test.json: sequences too deep");
        if (parts[i].many == NULL) continue;
        tt_str_clear(&json);
        assert_int_equal(tt_str_printf(&json, "{" MODEL ", \"%s\": {\"type\": \"Sequence\", \"%s\": [%s",
                                       parts[i].part, parts[i].list, parts[i].step),
                         TT_OK);
        for (int steps = 1; steps < 65; steps++)
            assert_int_equal(tt_str_printf(&json, ", %s", parts[i].step), TT_OK);
        assert_int_equal(tt_str_append_text(&json, "]}}"), TT_OK);
        expect_refused(json.data, TT_ERR_UNSUPPORTED, parts[i].many);
    }
    tt_str_deinit(&json);
    assert_int_equal(failed, 0);
}

/* The status of an encoding of so many bytes of the text. */
static void assert_text_refused(const char *json, const char *text, size_t bytes, const char *message)
{
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_ids ids = {0};
    assert_int_equal(tt_tokenizer_parse(json, strlen(json), "test.json", &tokenizer), TT_OK);
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &scratch), TT_OK);
    assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, text, bytes, false, &ids), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, message) == NULL)
        fail_msg("%s: %s, not %s", text, tt_error_last()->message, message);
    assert_int_equal(ids.count, 0);
    tt_ids_deinit(&ids);
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
}

static void texts(void **state)
{
    (void)state;
    assert_text_refused(BPE(LETTERS, "", ", \"unk_token\": \"?\""), "az", 2,
                        "unk_token '?' is needed and not in the vocabulary");
    assert_text_refused("{" MODEL "}", "a\xff", 2, "the text is not UTF-8: byte 1 is 0xFF");
    /* It is refused before it is read. */
    assert_text_refused("{" MODEL "}", "a", INT32_MAX,
                        "a text of 2147483647 bytes is too long to encode at once");
}

static void assert_message(tt_status status, const char *message)
{
    assert_int_equal(status, TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message, message);
}

/* Sizes beyond those of files are refused by their numbers, before anything is read. */
static void sizes(void **state)
{
    (void)state;
    struct vocab vocab = {0};
    struct added_finder finder = {0};
    assert_message(vocab_add(&vocab, "a", UINT32_MAX, 0), "a token of the vocabulary has 4294967295 bytes");
    assert_message(vocab_add(&(struct vocab){.count = UINT32_MAX / 4}, "a", 1, 0),
                   "the vocabulary has more than 1073741823 tokens");
    assert_int_equal(vocab_add(&vocab, "a", 1, 0), TT_OK);
    assert_message(vocab_add(&vocab, "a", 1, 1), "token 'a' is listed twice");
    assert_message(added_finder_build(&finder, &(struct added_pattern){"a", UINT32_MAX / 4, 0}, 1),
                   "the added tokens are too long");
    vocab_deinit(&vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(malformed), cmocka_unit_test(unsupported),
                                       cmocka_unit_test(limits), cmocka_unit_test(texts),
                                       cmocka_unit_test(sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
