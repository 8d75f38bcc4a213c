/* grammar/grammar.h: which texts sources have, which tokens masks allow, and which sources are refused, by what
 * name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "unit/grammar/words.h"

static struct tt_vocabulary *vocabulary;
static struct tt_span texts[VOCABULARY];
static char bytes[BYTE_TOKENS];

static int make_vocabulary(void **state)
{
    (void)state;
    make_texts(texts, bytes);
    return tt_vocabulary_of_texts(texts, VOCABULARY, &vocabulary) == TT_OK ? 0 : -1;
}

static int destroy_vocabulary(void **state)
{
    (void)state;
    tt_vocabulary_destroy(vocabulary);
    return 0;
}

static bool is_in_mask(const uint32_t *words, int32_t token)
{
    return (words[token / 32] >> token % 32 & 1) != 0;
}

/* Every token of the mask fits, and every token that fits is in the mask. */
static void check_mask(struct tt_grammar *grammar, struct tt_span before, struct tt_grammar_matcher *matcher)
{
    const uint32_t *lent;
    uint32_t words[(VOCABULARY + 31) / 32];
    test_must(tt_grammar_matcher_mask(matcher, &lent));
    memcpy(words, lent, sizeof words);
    for (int32_t token = 0; token < VOCABULARY; token++) {
        struct tt_grammar_matcher *other = NULL;
        bool fits;
        test_must(tt_grammar_matcher_create(grammar, &other));
        test_must(tt_grammar_matcher_advance_bytes(other, before, &fits));
        assert_true(fits);
        test_must(tt_grammar_matcher_advance(other, token, &fits));
        bool spelled = texts[token].bytes != 1 || (uint8_t)*texts[token].data < 0xF8;
        if (fits != is_in_mask(words, token) && spelled)
            fail_msg("behind '%.*s' token %d ('%.*s') fits: %d, is in the mask: %d", (int)before.bytes,
                     before.data, token, (int)texts[token].bytes, texts[token].data, fits,
                     is_in_mask(words, token));
        tt_grammar_matcher_destroy(other);
    }
}

/* 2: the text is whole; 1: a beginning; 0: it does not fit. With all masks on the way. */
static int match(const char *source, const char *text)
{
    struct tt_grammar *grammar = NULL;
    struct tt_grammar_matcher *matcher = NULL;
    int result = 0;
    bool fits = true;
    test_must(tt_grammar_compile(tt_span_of(source), vocabulary, &grammar));
    test_must(tt_grammar_matcher_create(grammar, &matcher));
    for (size_t i = 0; text[i] != 0 && fits; i++) {
        if (i % 7 == 0) check_mask(grammar, (struct tt_span){text, i}, matcher);
        test_must(tt_grammar_matcher_advance_bytes(matcher, (struct tt_span){text + i, 1}, &fits));
    }
    if (fits) {
        check_mask(grammar, tt_span_of(text), matcher);
        result = tt_grammar_matcher_may_end(matcher) ? 2 : 1;
    }
    tt_grammar_matcher_destroy(matcher);
    tt_grammar_release(grammar);
    return result;
}

static void expect(const char *source, const char *text, int wanted)
{
    int got = match(source, text);
    if (got != wanted) fail_msg("%s: '%s' is %d, not %d", source, text, got, wanted);
}

static void expect_json(const char *schema, const char *text, int wanted)
{
    char source[4096];
    snprintf(source, sizeof source, "{\"json\": %s}", schema);
    expect(source, text, wanted);
}

static void expect_regex(const char *pattern, const char *text, int wanted)
{
    char source[1024];
    snprintf(source, sizeof source, "{\"regex\": \"%s\"}", pattern);
    expect(source, text, wanted);
}

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern, *text;
        int wanted;
    } cases[] = {
        {"abc", "abc", 2},
        {"abc", "ab", 1},
        {"abc", "abd", 0},
        {"a|bc|", "", 2},
        {"a|bc|", "b", 1},
        {"(ab)*c?", "ababc", 2},
        {"(ab)*c?", "aba", 1},
        {"[a-cx]+", "acxb", 2},
        {"[a-cx]+", "d", 0},
        {"[^a-c]", "d", 2},
        {"[^a-c]", "a", 0},
        {"[^a-c]", "é", 2},
        {"a{2,3}", "a", 1},
        {"a{2,3}", "aaa", 2},
        {"a{2,3}", "aaaa", 0},
        {"a{2,}", "aaaaaaaa", 2},
        {"(a|b){2}", "ab", 2},
        {"((a{2}){2}){2}", "aaaaaaaa", 2},
        {"((a{2}){2}){2}", "aaaaaaaaa", 0},
        {"\\\\d\\\\D\\\\w\\\\W\\\\s\\\\S", "1a_! .", 2},
        {"\\\\d", "x", 0},
        {".", "\\n", 0},
        {".", "日", 2},
        {"日+", "日日", 2},
        {"[日-本]", "本", 2},
        {"[\\\\d\\\\-x]*", "1-x2", 2},
        {"\\\\x41\\\\u0042\\\\u{43}\\\\.", "ABC.", 2},
        {"^a$", "a", 2},
        {"(^a|b)c", "bc", 2},
        {"x(^a|b)", "xb", 2},
        {"x(^a|b)", "xa", 0},
        {"a(b$|c)d?", "acd", 2},
        {"a(b$|c)d?", "abd", 0},
        {"(?:ab)+?(?<n>c)", "ababc", 2},
        {"\\\\ud83d\\\\ude00", "\xF0\x9F\x98\x80", 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_regex(cases[i].pattern, cases[i].text, cases[i].wanted);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        double min, max; /* of the integers that it has */
        int64_t multiple;
    } cases[] = {
        {"{\"type\": \"integer\", \"minimum\": -3, \"maximum\": 12}", -3, 12, 1},
        {"{\"type\": \"integer\", \"minimum\": 7, \"maximum\": 1234}", 7, 1234, 1},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": 7, \"exclusiveMaximum\": 110}", 8, 109, 1},
        {"{\"type\": \"integer\", \"minimum\": 0.5, \"maximum\": 99.5}", 1, 99, 1},
        {"{\"type\": \"integer\", \"maximum\": -95}", -1e9, -95, 1},
        {"{\"type\": \"integer\", \"minimum\": 95}", 95, 1e9, 1},
        {"{\"type\": \"integer\", \"minimum\": -20, \"maximum\": 300, \"multipleOf\": 7}", -20, 300, 7},
        {"{\"type\": \"integer\", \"multipleOf\": 12}", -1e9, 1e9, 12},
        {"{\"type\": \"number\", \"minimum\": -1.5, \"maximum\": 20}", -1.5, 20, 1},
        {"{\"allOf\": [{\"minimum\": 3}, {\"exclusiveMaximum\": 9}, {\"type\": \"integer\"}]}", 3, 8, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t value = -130; value <= 1300; value += value < 130 && value > -30 ? 1 : 7) {
            char text[32];
            bool has = (double)value >= cases[i].min && (double)value <= cases[i].max &&
                       value % cases[i].multiple == 0;
            snprintf(text, sizeof text, "%lld", (long long)value);
            struct tt_grammar *grammar = NULL;
            struct tt_grammar_matcher *matcher = NULL;
            char source[512];
            bool fits;
            snprintf(source, sizeof source, "{\"json\": %s}", cases[i].schema);
            test_must(tt_grammar_compile(tt_span_of(source), vocabulary, &grammar));
            test_must(tt_grammar_matcher_create(grammar, &matcher));
            test_must(tt_grammar_matcher_advance_bytes(matcher, tt_span_of(text), &fits));
            if ((fits && tt_grammar_matcher_may_end(matcher)) != has)
                fail_msg("%s: %s is there: %d", cases[i].schema, text, fits);
            tt_grammar_matcher_destroy(matcher);
            tt_grammar_release(grammar);
        }
    static const char bounded[] = "{\"type\": \"number\", \"minimum\": 0.25, \"exclusiveMaximum\": 10.5}";
    expect_json(bounded, "0.25", 2);
    expect_json(bounded, "0.2", 1);
    expect_json(bounded, "0.249", 0);
    expect_json(bounded, "10.499999", 2);
    expect_json(bounded, "10.5", 0);
    expect_json(bounded, "10.", 1);
    expect_json(bounded, "-0", 0);
    expect_json("{\"type\": \"number\"}", "-0.5e+12", 2);
    expect_json("{\"type\": \"number\"}", "01", 0);
    expect_json("{\"type\": \"number\", \"exclusiveMinimum\": 0}", "0.000001", 2);
    expect_json("{\"type\": \"number\", \"exclusiveMinimum\": 0}", "0.000000", 0);
    expect_json("{\"type\": \"number\", \"exclusiveMinimum\": 0}", "123456.5", 2);
}

static void test_values(void **state)
{
    (void)state;
    expect_json("true", "{\"a\": [1, null, {\"b\": \"x\\\\u00e9\"}]}", 2);
    expect_json("true", "[\n  1,\n  2\n]", 2);
    expect_json("{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}", "\"é\"", 0);
    expect_json("{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}", "\"éx\\n\"", 2);
    expect_json("{\"type\": \"string\", \"maxLength\": 3}", "\"abcd", 0);
    expect_json("{\"type\": \"string\", \"pattern\": \"^a+$\"}", "\"aaa\"", 2);
    expect_json("{\"type\": \"string\", \"pattern\": \"^a+$\", \"maxLength\": 2}", "\"aaa", 0);
    expect_json("{\"type\": \"string\", \"pattern\": \"b\"}", "\"xxbyy\"", 2);
    expect_json("{\"type\": \"string\", \"pattern\": \"b\"}", "\"xx\"", 0);
    expect_json("{\"type\": \"string\", \"pattern\": \"^\\\\n\\\"$\"}", "\"\\n\\\"\"", 2);
    expect_json("{\"type\": \"string\"}", "\"\\ud83d\\ude00\"", 2);
    expect_json("{\"type\": \"string\"}", "\"\\ud83d\"", 0);
    expect_json("{\"type\": \"string\"}", "\"\\u0000", 0);
    expect_json("{\"enum\": [\"a\", \"ab\", 1, null, {\"x\": [1, 2]}]}", "{\"x\": [1, 2]}", 2);
    expect_json("{\"enum\": [\"a\", \"ab\", 1, null]}", "\"a", 1);
    expect_json("{\"enum\": [\"a\", \"abc\", 1], \"type\": \"string\", \"minLength\": 2}", "\"a\"", 0);
    expect_json("{\"enum\": [\"a\", \"abc\", 1], \"type\": \"string\", \"minLength\": 2}", "\"abc\"", 2);
    expect_json("{\"const\": \"é\\\"\"}", "\"é\\\"\"", 2);
    expect_json("{\"type\": [\"null\", \"boolean\"]}", "true", 2);
    expect_json("{\"type\": [\"null\", \"boolean\"]}", "1", 0);
    expect_json("{\"type\": \"string\", \"format\": \"date\"}", "\"2024-02-29\"", 2);
    expect_json("{\"type\": \"string\", \"format\": \"date\"}", "\"2023-02-29", 0);
    expect_json("{\"type\": \"string\", \"format\": \"date\"}", "\"1900-02-29", 0);
    expect_json("{\"type\": \"string\", \"format\": \"date-time\"}", "\"2024-12-31T23:59:59.5+01:00\"", 2);
    expect_json("{\"type\": \"string\", \"format\": \"time\"}", "\"24", 0);
    expect_json("{\"type\": \"string\", \"format\": \"ipv4\"}", "\"255.0.10.1\"", 2);
    expect_json("{\"type\": \"string\", \"format\": \"ipv4\"}", "\"256", 0);
    expect_json("{\"type\": \"string\", \"format\": \"uuid\"}", "\"01234567-89ab-cdef-0123-456789abcdef\"",
                2);
}

static void test_lists(void **state)
{
    (void)state;
    static const char two[] =
        "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 2, \"maxItems\": 3}";
    expect_json(two, "[1, 2]", 2);
    expect_json(two, "[1,2,3]", 2);
    expect_json(two, "[1]", 0);
    expect_json(two, "[1,2,3,", 0);
    expect_json(two, "[\n  1,\n  2\n]", 2);
    static const char prefix[] = "{\"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"string\"}]}";
    expect_json(prefix, "[1, \"a\"]", 2);
    expect_json(prefix, "[]", 2);
    expect_json(prefix, "[1, 2", 0);
    expect_json(prefix, "[1, \"a\", ", 0);
    expect_json("{\"prefixItems\": [{\"type\": \"integer\"}], \"items\": {\"type\": \"null\"}}",
                "[1, null, null]", 2);
    expect_json("{\"prefixItems\": [{\"type\": \"integer\"}], \"items\": false}", "[1,", 0);
    expect_json("{\"prefixItems\": [{\"type\": \"null\"}], \"minItems\": 2}", "[null, {\"a\": 1}]", 2);
    expect_json("{\"type\": \"array\", \"maxItems\": 0}", "[]", 2);
    expect_json("{\"type\": \"array\", \"maxItems\": 0}", "[1", 0);
    expect_json("{\"type\": \"array\", \"minItems\": 1}", "[]", 0);
    expect_json("{\"type\": \"array\", \"minItems\": 1}", "[[[[]]]]", 2);
    expect_json("{\"type\": \"array\", \"items\": {\"type\": \"array\"}}", "[[[[]]]]", 2);
}

static void test_objects(void **state)
{
    (void)state;
    static const char some[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, "
                               "\"ab\": {\"type\": \"null\"}, "
                               "\"c\": {\"type\": \"string\"}}, \"required\": [\"ab\"]}";
    expect_json(some, "{\"a\": 1, \"ab\": null, \"c\": \"x\"}", 2);
    expect_json(some, "{\"ab\":null}", 2);
    expect_json(some, "{\"ab\": null, \"a", 0);
    expect_json(some, "{\"a\": 1}", 0);
    expect_json(some, "{}", 0);
    expect_json(some, "{\"ab\": null, \"d", 0);
    static const char open[] = "{\"properties\": {\"a\": {\"type\": \"integer\"}}, \"additionalProperties\": "
                               "{\"type\": \"null\"}, \"type\": \"object\"}";
    expect_json(open, "{\"a\": 1, \"b\": null, \"\": null}", 2);
    expect_json(open, "{\"b\": null}", 2);
    expect_json(open, "{\"b\": null, \"a\"", 0);
    expect_json(open, "{\"b\": 1", 0);
    expect_json(
        "{\"type\": \"object\", \"minProperties\": 2, \"maxProperties\": 3, \"additionalProperties\": true}",
        "{\"a\": 1}", 0);
    expect_json(
        "{\"type\": \"object\", \"minProperties\": 2, \"maxProperties\": 3, \"additionalProperties\": true}",
        "{\"ab\": 1, \"abc\": 2, \"x\": 3}", 2);
    expect_json(
        "{\"type\": \"object\", \"minProperties\": 2, \"maxProperties\": 3, \"additionalProperties\": true}",
        "{\"ab\": 1, \"ab\"", 0);
    static const char bounded[] = "{\"properties\": {\"a\": true, \"b\": true, \"c\": true}, "
                                  "\"minProperties\": 1, \"maxProperties\": 2}";
    expect_json(bounded, "{}", 0);
    expect_json(bounded, "{\"b\": 1, \"c\": 2}", 2);
    expect_json(bounded, "{\"a\": 1, \"b\": 2, ", 0);
    expect_json("{\"required\": [\"z\"], \"type\": \"object\"}", "{\"a\": 1}", 0);
    expect_json("{\"required\": [\"z\"], \"type\": \"object\"}", "{\"z\": 1, \"a\": 1}", 2);
    expect_json("{\"properties\": {\"a\\\"\": {\"const\": 1}}}", "{\"a\\\"\": 1}", 2);
}

static void test_joined(void **state)
{
    (void)state;
    static const char tree[] = "{\"$ref\": \"#/$defs/node\", \"$defs\": {\"node\": {\"type\": \"object\", "
                               "\"properties\": {\"v\": {\"type\": "
                               "\"integer\"}, \"next\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": "
                               "\"#/$defs/node\"}]}}, \"required\": "
                               "[\"v\", \"next\"]}}}";
    expect_json(tree, "{\"v\": 1, \"next\": {\"v\": 2, \"next\": null}}", 2);
    expect_json(tree, "{\"v\": 1, \"next\": {\"v\": 2}", 0);
    expect_json("{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"string\", \"maxLength\": 1}]}", "\"a\"",
                2);
    expect_json("{\"anyOf\": [{\"properties\": {\"ab\": {\"const\": 1}}}, {\"properties\": {\"ac\": "
                "{\"const\": 2}}}]}",
                "{\"ac\": 2}", 2);
    expect_json("{\"allOf\": [{\"properties\": {\"a\": {\"minimum\": 3}}}, {\"properties\": {\"a\": "
                "{\"maximum\": 3}}}]}",
                "{\"a\": 3}", 2);
    expect_json("{\"allOf\": [{\"properties\": {\"a\": {\"minimum\": 3}}}, {\"properties\": {\"a\": "
                "{\"maximum\": 3}}}]}",
                "{\"a\": 4", 0);
    expect_json("{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"string\"}, {\"type\": \"object\"}]}",
                "{}", 2);
    static const char kinds[] = "{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"kind\": {\"const\": "
                                "\"a\"}, \"x\": {\"type\": \"null\"}}, "
                                "\"required\": [\"kind\"]}, {\"type\": \"object\", \"properties\": "
                                "{\"kind\": {\"const\": \"b\"}}, \"required\": "
                                "[\"kind\"]}]}";
    expect_json(kinds, "{\"kind\": \"a\", \"x\": null}", 2);
    expect_json(kinds, "{\"kind\": \"b\", \"x", 0);
    expect_json(
        "{\"properties\": {\"a\": {\"$ref\": \"#/$defs/x~1y%20z\"}}, \"$defs\": {\"x/y z\": {\"const\": 5}}}",
        "{\"a\": 5}", 2);
    expect_json("{\"$ref\": \"#/$defs/a\", \"maximum\": 5, \"$defs\": {\"a\": {\"type\": \"integer\", "
                "\"minimum\": 5}}}",
                "5", 2);
    expect_json("{\"anyOf\": [{\"$ref\": \"#/$defs/l\"}], \"$defs\": {\"l\": {\"type\": \"array\", "
                "\"items\": {\"$ref\": "
                "\"#/$defs/l\"}}}}",
                "[[], [[]]]", 2);
}

/* 64 lists fit into each other; the 65th cannot begin, and what began can end. */
static void test_depth(void **state)
{
    (void)state;
    static const char source[] = "{\"json\": {\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}}";
    struct tt_grammar *grammar = NULL;
    struct tt_grammar_matcher *matcher = NULL;
    bool fits = true;
    int open = 0;
    test_must(tt_grammar_compile(tt_span_of(source), vocabulary, &grammar));
    test_must(tt_grammar_matcher_create(grammar, &matcher));
    while (fits && open < 200) {
        test_must(tt_grammar_matcher_advance_bytes(matcher, tt_span_of("["), &fits));
        open += fits;
    }
    assert_int_equal(open, 65);
    for (; open > 0; open--) {
        test_must(tt_grammar_matcher_advance_bytes(matcher, tt_span_of("]"), &fits));
        assert_true(fits);
    }
    assert_true(tt_grammar_matcher_is_over(matcher));
    tt_grammar_matcher_destroy(matcher);
    tt_grammar_release(grammar);
    /* A list that must have a list in it, up to 64 of them, has none. */
    assert_int_equal(tt_grammar_compile(
                         tt_span_of("{\"json\": {\"type\": \"array\", \"minItems\": 1, \"items\": {\"$ref\": "
                                    "\"#\"}}}"),
                         vocabulary, &grammar),
                     TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "no answer fits the grammar"));
}

static void test_parts(void **state)
{
    (void)state;
    char source[256];
    expect("{\"choice\": [{\"text\": \"yes\"}, {\"text\": \"yesterday\"}]}", "yes", 2);
    expect("{\"choice\": [{\"text\": \"yes\"}, {\"text\": \"yesterday\"}]}", "yest", 1);
    expect("{\"sequence\": [{\"text\": \"<\"}, {\"json\": {\"type\": \"integer\"}}, {\"text\": \">\"}]}",
           "<12>", 2);
    expect("{\"repeat\": {\"sequence\": [{\"text\": \"<\"}, {\"regex\": \"a*\"}, {\"text\": \">\"}]}}",
           "<a><><aa>", 2);
    expect("{\"repeat\": {\"text\": \"a\"}}", "", 1);
    expect("{\"sequence\": [{\"without\": \"</p>\"}, {\"text\": \"</p>\"}]}", "x </ y<</p>", 2);
    expect("{\"sequence\": [{\"without\": \"</p>\"}, {\"text\": \"</p>\"}]}", "x</p>y", 0);
    snprintf(source, sizeof source, "{\"sequence\": [{\"token\": %d}, {\"text\": \"a\"}]}", NO_TEXT);
    struct tt_grammar *grammar = NULL;
    struct tt_grammar_matcher *matcher = NULL;
    const uint32_t *words;
    bool fits;
    test_must(tt_grammar_compile(tt_span_of(source), vocabulary, &grammar));
    test_must(tt_grammar_matcher_create(grammar, &matcher));
    test_must(tt_grammar_matcher_mask(matcher, &words));
    for (int32_t token = 0; token < VOCABULARY; token++)
        assert_int_equal(is_in_mask(words, token), token == NO_TEXT);
    test_must(tt_grammar_matcher_advance(matcher, NO_TEXT, &fits));
    assert_true(fits);
    test_must(tt_grammar_matcher_advance(matcher, 'a', &fits));
    assert_true(fits && tt_grammar_matcher_is_over(matcher) && tt_grammar_matcher_may_end(matcher));
    tt_grammar_matcher_destroy(matcher);
    tt_grammar_release(grammar);
}

static const struct {
    const char *source, *message;
} refusals[] = {
    {"{\"json\": {\"not\": {}}}", "the keyword 'not'"},
    {"{\"json\": {\"properties\": {\"a\": {\"patternProperties\": {}}}}}", "the keyword 'patternProperties'"},
    {"{\"json\": {\"$defs\": {\"a\": {\"if\": true}}}}", "the keyword 'if'"},
    {"{\"json\": {\"uniqueItems\": true}}", "the keyword 'uniqueItems'"},
    {"{\"json\": {\"contains\": true}}", "the keyword 'contains'"},
    {"{\"json\": {\"propertyNames\": true}}", "the keyword 'propertyNames'"},
    {"{\"json\": {\"dependentRequired\": {}}}", "the keyword 'dependentRequired'"},
    {"{\"json\": {\"unevaluatedProperties\": false}}", "the keyword 'unevaluatedProperties'"},
    {"{\"json\": {\"$anchor\": \"a\"}}", "the keyword '$anchor'"},
    {"{\"json\": {\"$dynamicRef\": \"#a\"}}", "the keyword '$dynamicRef'"},
    {"{\"json\": {\"nullable\": true}}", "the keyword 'nullable'"},
    {"{\"json\": {\"format\": \"email\"}}", "the format 'email' is not supported"},
    {"{\"json\": {\"multipleOf\": 0.1}}", "'multipleOf' must be an integer above 0"},
    {"{\"json\": {\"type\": \"integer\", \"multipleOf\": 20000}}", "at most 10000"},
    {"{\"json\": {\"allOf\": [{\"multipleOf\": 999999999989}, {\"multipleOf\": 999999999959}]}}",
     "the common multiple of multipleOf is too large"},
    {"{\"json\": {\"items\": {\"$id\": \"x\"}}}", "'$id' is supported at the root alone"},
    {"{\"json\": {\"type\": \"float\"}}", "the value of the keyword 'type' must be"},
    {"{\"json\": {\"minLength\": -1}}", "'minLength' must be an integer that is not negative"},
    {"{\"json\": {\"required\": \"a\"}}", "'required' must be a list of texts"},
    {"{\"json\": {\"properties\": []}}", "'properties' must be an object of schemas"},
    {"{\"json\": {\"anyOf\": []}}", "'anyOf' must be a list of schemas"},
    {"{\"json\": {\"enum\": []}}", "'enum' must be a list of values"},
    {"{\"json\": {\"minimum\": \"1\"}}", "'minimum' must be a number"},
    {"{\"json\": {\"pattern\": 1}}", "'pattern' must be a text"},
    {"{\"json\": {\"items\": 3}}", "a schema must be an object, true or false"},
    {"{\"json\": {\"$ref\": \"other.json\"}}", "the $ref 'other.json' names no part of the schema"},
    {"{\"json\": {\"$ref\": \"#/$defs/a\"}}", "the $ref '#/$defs/a' names no part"},
    {"{\"json\": {\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"$ref\": \"#/$defs/a\"}}}}",
     "a $ref leads to itself"},
    {"{\"json\": {\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}}", "the schemas of 'oneOf'"},
    {"{\"json\": {\"oneOf\": [{\"minLength\": 2}, {\"type\": \"integer\"}]}}", "the schemas of 'oneOf'"},
    {"{\"json\": false}", "no answer fits the grammar"},
    {"{\"json\": {\"type\": \"string\", \"minLength\": 3, \"maxLength\": 2}}", "no answer fits the grammar"},
    {"{\"json\": {\"type\": \"integer\", \"minimum\": 1e40}}", "no answer fits the grammar"},
    {"{\"json\": {\"type\": \"number\", \"maximum\": -1e300}}", "no answer fits the grammar"},
    {"{\"json\": {\"properties\": {\"a\": false}, \"required\": [\"a\"], \"type\": \"object\"}}",
     "no answer fits the grammar"},
    {"{\"json\": {\"type\": \"string\", \"maxLength\": 10000000}}", "the grammar takes more than"},
    {"{\"json\": {\"type\": \"string\", \"pattern\": \"(a{1000}){1000}\"}}", "the grammar takes more than"},
    {"{\"json\": {\"type\": \"string\", \"pattern\": \"x.{40}a.{14}b|y.*a.{20}\"}}",
     "the grammar takes more than"},
    {"{\"json\": {\"type\": \"array\", \"minItems\": 100000000}}", "the grammar takes more than"},
    {"{\"json\": {\"type\": \"object\", \"maxProperties\": 100000000}}", "the grammar takes more than"},
    {"{\"regex\": \"a(?=b)\"}", "this kind of group is not supported"},
    {"{\"regex\": \"a\\\\b\"}", "this escape is not supported"},
    {"{\"regex\": \"(a)\\\\1\"}", "this escape is not supported"},
    {"{\"regex\": \"\\\\p{L}\"}", "this escape is not supported"},
    {"{\"regex\": \"(a\"}", "a parenthesis has no end"},
    {"{\"regex\": \"a)\"}", "a parenthesis has no begin"},
    {"{\"regex\": \"[a\"}", "a class has no end"},
    {"{\"regex\": \"*a\"}", "there is nothing to repeat"},
    {"{\"regex\": \"a**\"}", "there is nothing to repeat"},
    {"{\"regex\": \"a{3,2}\"}", "these counts are out of order"},
    {"{\"regex\": \"a{x}\"}", "a count is missing"},
    {"{\"regex\": \"a{1\"}", "a count has no end"},
    {"{\"regex\": \"a{1000000}\"}", "a count above 100000"},
    {"{\"regex\": \"[b-a]\"}", "this range is out of order"},
    {"{\"regex\": \"\\\\x4\"}", "hexadecimal digits are missing"},
    {"{\"regex\": \"\\\\ud800\"}", "a surrogate has no pair"},
    {"{\"regex\": \"\\\\u{110000}\"}", "is no code point"},
    {"{\"regex\": \"a\\\\\"}", "a backslash at the end"},
    {"{\"grammar\": 1}", "a part of a grammar is an object"},
    {"{\"text\": 1}", "a part of a grammar is an object"},
    {"{\"choice\": []}", "no answer fits the grammar"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct tt_grammar *grammar = NULL;
        tt_status status = tt_grammar_compile(tt_span_of(refusals[i].source), vocabulary, &grammar);
        if (status != TT_ERR_USAGE) fail_msg("%s: status %d", refusals[i].source, (int)status);
        if (strstr(tt_error_last()->message, refusals[i].message) == NULL)
            fail_msg("%s: %s", refusals[i].source, tt_error_last()->message);
    }
}

/* The same source is compiled once; of many sources the last ones stay. */
static void test_cache(void **state)
{
    (void)state;
    struct tt_grammar_cache *cache = NULL;
    struct tt_grammar *first = NULL, *again = NULL, *other = NULL;
    test_must(tt_grammar_cache_create(vocabulary, &cache));
    test_must(tt_grammar_cache_get(cache, tt_span_of("{\"text\": \"a\"}"), &first));
    test_must(tt_grammar_cache_get(cache, tt_span_of("{\"text\": \"a\"}"), &again));
    assert_ptr_equal(first, again);
    tt_grammar_release(again);
    for (int i = 0; i < 40; i++) {
        char source[32];
        snprintf(source, sizeof source, "{\"text\": \"b%d\"}", i);
        test_must(tt_grammar_cache_get(cache, tt_span_of(source), &other));
        tt_grammar_release(other);
    }
    test_must(tt_grammar_cache_get(cache, tt_span_of("{\"text\": \"a\"}"), &again));
    assert_ptr_not_equal(first, again);
    tt_grammar_release(again);
    tt_grammar_release(first);
    assert_int_equal(tt_grammar_cache_get(cache, tt_span_of("{\"json\": {\"not\": {}}}"), &other),
                     TT_ERR_USAGE);
    tt_grammar_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_numbers), cmocka_unit_test(test_values),
        cmocka_unit_test(test_lists),    cmocka_unit_test(test_objects), cmocka_unit_test(test_joined),
        cmocka_unit_test(test_depth),    cmocka_unit_test(test_parts),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cache),
    };
    return cmocka_run_group_tests(tests, make_vocabulary, destroy_vocabulary);
}
