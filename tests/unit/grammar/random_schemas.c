/* Random schemas, with every keyword, and random texts by their masks: a text that ends by itself is JSON that its
 * schema has, and one that is cut can be completed to such. Schemas that a grammar refuses are refused for want of
 * any value or for their cost. TT_GRAMMAR_SCHEMAS is the number of schemas; TT_GRAMMAR_LINES a file that gets a
 * line of JSON for each text, for other validators. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"
#include "grammar/schema.h"
#include "unit/grammar/words.h"

enum { SCHEMAS = 1200, TOKENS_MAX = 24, COMPLETION_MAX = 4000, DEPTH = 4, DEFINITIONS = 3 };

static struct tt_rng rng;
static uint64_t drawn;

static int below(int count)
{
    return (int)(tt_rng_u64(rng, drawn++) % (uint64_t)count);
}

static void put(struct tt_str *out, const char *format, ...) TT_PRINTF(2, 3);
static void put(struct tt_str *out, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    test_must(tt_str_append_text(out, text));
}

/* ---- Schemas ---- */

static void put_schema(struct tt_str *out, int depth);

static void put_integer(struct tt_str *out)
{
    int low = below(400) - 200;
    put(out, "{\"type\": \"integer\"");
    if (below(2) == 0)
        put(out, ", \"%s\": %d%s", below(2) ? "minimum" : "exclusiveMinimum", low, below(4) ? "" : ".5");
    if (below(2) == 0)
        put(out, ", \"%s\": %d", below(2) ? "maximum" : "exclusiveMaximum", low + below(300) + 20);
    if (below(4) == 0) put(out, ", \"multipleOf\": %d", below(12) + 1);
    put(out, "}");
}

static void put_number(struct tt_str *out)
{
    double low = (below(4000) - 2000) / 8.0;
    put(out, "{\"type\": \"number\"");
    if (below(2) == 0) put(out, ", \"%s\": %g", below(2) ? "minimum" : "exclusiveMinimum", low);
    if (below(2) == 0)
        put(out, ", \"%s\": %g", below(2) ? "maximum" : "exclusiveMaximum", low + below(100) / 16.0 + 0.1);
    put(out, "}");
}

static void put_string(struct tt_str *out)
{
    static const char *const patterns[] = {
        "^[a-z]{2,5}$", "x", "^(ab|c)+", "[0-9]$", "^\\\\w+@\\\\w+\\\\.(de|com)$", "é|日", "^[^\\\\n]*$"};
    static const char *const formats[] = {"date", "time", "date-time", "ipv4", "uuid"};
    int kind = below(5);
    put(out, "{\"type\": \"string\"");
    if (kind == 0) put(out, ", \"minLength\": %d", below(6));
    if (kind == 1) put(out, ", \"minLength\": %d, \"maxLength\": %d", below(4), 4 + below(6));
    if (kind == 2) put(out, ", \"pattern\": \"%s\"", patterns[below(7)]);
    if (kind == 2 && below(2) == 0) put(out, ", \"maxLength\": %d", 9 + below(6));
    if (kind == 3) put(out, ", \"format\": \"%s\"", formats[below(5)]);
    put(out, "}");
}

static void put_given(struct tt_str *out)
{
    static const char *const values[] = {"1",    "\"a\"",      "null",       "true",
                                         "-2.5", "\"é\\\"x\"", "[1, \"b\"]", "{\"k\": [null]}"};
    if (below(3) == 0) {
        put(out, "{\"const\": %s}", values[below(8)]);
        return;
    }
    put(out, "{\"enum\": [%s, %s, %s]", values[below(4)], values[4 + below(2)], values[6 + below(2)]);
    if (below(3) == 0) put(out, ", \"type\": [\"string\", \"array\", \"null\"]");
    put(out, "}");
}

static void put_list(struct tt_str *out, int depth)
{
    int prefix = below(3) == 0 ? 1 + below(2) : 0, min = below(3);
    put(out, "{\"type\": \"array\"");
    for (int i = 0; i < prefix; i++) {
        put(out, i == 0 ? ", \"prefixItems\": [" : ", ");
        put_schema(out, depth - 1);
    }
    if (prefix > 0) put(out, "]");
    if (below(4) > 0) {
        put(out, ", \"items\": ");
        put_schema(out, depth - 1);
    }
    if (below(2) == 0) put(out, ", \"minItems\": %d", min);
    if (below(2) == 0) put(out, ", \"maxItems\": %d", min + below(3));
    put(out, "}");
}

static void put_object(struct tt_str *out, int depth)
{
    static const char *const names[] = {"a", "ab", "name", "é", "x\\\"y", "n"};
    int first = below(3), count = below(4), required = 0;
    put(out, "{\"type\": \"object\"");
    if (count > 0 || below(2) == 0) put(out, ", \"properties\": {");
    bool listed = out->data[out->bytes - 1] == '{' && out->bytes > 1 && out->data[out->bytes - 2] == ' ';
    for (int i = 0; i < count && listed; i++) {
        put(out, "%s\"%s\": ", i > 0 ? ", " : "", names[first + i]);
        put_schema(out, depth - 1);
    }
    if (listed) put(out, "}");
    for (int i = 0; i < count && listed; i++)
        if (below(2) == 0)
            put(out, "%s\"%s\"", required++ == 0 ? ", \"required\": [" : ", ", names[first + i]);
    if (required > 0) put(out, "]");
    if (below(3) == 0) {
        put(out, ", \"additionalProperties\": ");
        put_schema(out, depth - 1);
    } else if (below(3) == 0) {
        put(out, ", \"additionalProperties\": false");
    }
    if (below(4) == 0) put(out, ", \"minProperties\": %d", below(3));
    if (below(4) == 0) put(out, ", \"maxProperties\": %d", 2 + below(4));
    put(out, "}");
}

static void put_alternatives(struct tt_str *out, int depth)
{
    int kind = below(4);
    if (kind < 2) {
        put(out, "{\"anyOf\": [");
        put_schema(out, depth - 1);
        put(out, ", ");
        put_schema(out, depth - 1);
        put(out, "]}");
    } else if (kind == 2) {
        put(out, "{\"oneOf\": [");
        put_integer(out);
        put(out, ", ");
        put_string(out);
        put(out, ", ");
        put_object(out, depth - 1);
        put(out, "]}");
    } else {
        put(out, "{\"allOf\": [");
        put_object(out, depth - 1);
        put(out, ", {\"properties\": {\"ab\": ");
        put_schema(out, depth - 1);
        put(out, "}}], \"maxProperties\": 5}");
    }
}

static void put_schema(struct tt_str *out, int depth)
{
    int kind = below(depth > 0 ? 12 : 6);
    if (kind == 0) put_integer(out);
    if (kind == 1) put_number(out);
    if (kind == 2) put_string(out);
    if (kind == 3) put_given(out);
    if (kind == 4) put(out, below(3) == 0 ? "true" : "{\"type\": [\"boolean\", \"null\"], \"title\": \"t\"}");
    if (kind == 5) put(out, "{\"$ref\": \"#/$defs/d%d\"}", below(DEFINITIONS));
    if (kind == 6 || kind == 7) put_list(out, depth);
    if (kind == 8 || kind == 9) put_object(out, depth);
    if (kind > 9) put_alternatives(out, depth);
}

static void put_root(struct tt_str *out)
{
    put(out, "{\"$defs\": {");
    for (int d = 0; d < DEFINITIONS; d++) {
        put(out, "%s\"d%d\": ", d > 0 ? ", " : "", d);
        if (d == 0)
            put_string(out);
        else if (d == 1)
            put_object(out, 2);
        else
            put_list(out, 2);
    }
    put(out, "}, \"allOf\": [");
    if (below(2) == 0)
        put_object(out, DEPTH);
    else
        put_schema(out, DEPTH);
    put(out, "]}");
}

/* ---- Texts ---- */

static struct tt_vocabulary *vocabulary;
static struct tt_span texts[VOCABULARY];
static char bytes[BYTE_TOKENS];

/* A token of the mask: any one; `closes`: one that ends strings, objects and lists where there is one. */
static int32_t pick(const uint32_t *words, bool closes)
{
    static const char closing[] = "\"}]";
    int32_t allowed[VOCABULARY], count = 0, pieces_first = VOCABULARY;
    bool hurries =
        closes && below(2) == 0; /* a quote alone may lead nowhere: a pattern may want more before it */
    for (int i = 0, first = below(3); hurries && i < 3; i++) {
        char close = closing[(first + i) % 3];
        if ((words[close / 32] >> close % 32 & 1) != 0) return close;
    }
    for (int32_t token = 0; token < VOCABULARY; token++) {
        if ((words[token / 32] >> token % 32 & 1) == 0) continue;
        if (token >= BYTE_TOKENS && count < pieces_first) pieces_first = count;
        allowed[count++] = token;
    }
    if (count == 0) return -1;
    /* Pieces and quotes come more often than each of the many other bytes. */
    if (pieces_first < count && below(2) == 0) return allowed[pieces_first + below(count - pieces_first)];
    if ((words['"' / 32] >> '"' % 32 & 1) != 0 && below(4) == 0) return '"';
    return allowed[below(count)];
}

/* Appends up to `most` tokens. True: the text has ended. */
static bool extend(struct tt_grammar_matcher *matcher, int most, bool closes, struct tt_str *text)
{
    for (int i = 0; i < most; i++) {
        const uint32_t *words;
        bool fits, may_end = tt_grammar_matcher_may_end(matcher);
        if (tt_grammar_matcher_is_over(matcher)) return true;
        if (may_end && (closes || below(3) == 0)) return true;
        test_must(tt_grammar_matcher_mask(matcher, &words));
        int32_t token = pick(words, closes);
        if (token < 0) fail_msg("no token may follow '%s'", tt_str_text(text));
        test_must(tt_grammar_matcher_advance(matcher, token, &fits));
        assert_true(fits);
        test_must(tt_str_append(text, texts[token].data, texts[token].bytes));
    }
    return tt_grammar_matcher_may_end(matcher) && closes;
}

static void write_line(FILE *lines, const struct tt_json_value *schema, const struct tt_str *text,
                       bool completed)
{
    struct tt_str line = {0};
    if (lines == NULL) return;
    struct tt_json_value *value =
        tt_json_pack("{s:O, s:t, s:b}", "schema", schema, "text",
                     (struct tt_span){tt_str_text(text), text->bytes}, "completed", completed);
    test_must(tt_json_write(value, 0, false, &line));
    fprintf(lines, "%s\n", tt_str_text(&line));
    tt_json_release(value);
    tt_str_deinit(&line);
}

/* A schema is longer than messages of the framework may be. */
static void print_and_fail(const char *what, const struct tt_str *text, const char *schema)
{
    printf("schema: %s\ntext: %.2000s\n", schema, tt_str_text(text));
    fail_msg("%s: %s", what, tt_error_last()->message);
}

/* Keys may come twice, as RFC 8259 allows; the last one counts elsewhere, and here neither is looked at. */
static void check_text(const struct tt_json_value *root, const struct tt_str *text, const char *schema)
{
    struct grammar_work work = {.status = TT_OK};
    struct schema own = {.work = &work, .root = root};
    struct tt_json json = {0};
    for (int b = 0; b < 256; b++) work.alphabet[b] = true;
    tt_status status = tt_json_parse(tt_str_text(text), text->bytes, "the text", &json);
    bool twice = status != TT_OK && strstr(tt_error_last()->message, "duplicate key") != NULL;
    if (status != TT_OK && !twice) print_and_fail("it is no JSON", text, schema);
    if (status == TT_OK && !schema_accepts(&own, root, json.root))
        print_and_fail("the schema does not have it", text, schema);
    tt_json_deinit(&json);
    schema_deinit(&own);
    tt_error_clear();
}

struct counts {
    int compiled, ended, completed;
    int unfinished; /* lists in lists that need two lists each: 2^64 are the end */
};

static void check_schema(const char *text, FILE *lines, struct counts *counts)
{
    struct tt_str source = {0}, answer = {0};
    struct tt_json json = {0};
    struct tt_grammar *grammar = NULL;
    put(&source, "{\"json\": ");
    test_must(tt_str_append_text(&source, text));
    put(&source, "}");
    test_must(tt_json_parse(text, strlen(text), "the schema", &json));
    tt_status status = tt_grammar_compile((struct tt_span){source.data, source.bytes}, vocabulary, &grammar);
    if (status != TT_OK) {
        const char *message = tt_error_last()->message;
        bool known = strstr(message, "no answer fits") != NULL || strstr(message, "more than") != NULL;
        if (status != TT_ERR_USAGE || !known) fail_msg("%s: %s", text, message);
    }
    counts->compiled += status == TT_OK;
    for (int i = 0; i < 2 && status == TT_OK; i++) {
        struct tt_grammar_matcher *matcher = NULL;
        tt_str_clear(&answer);
        test_must(tt_grammar_matcher_create(grammar, &matcher));
        bool ended = extend(matcher, TOKENS_MAX, false, &answer),
             completed = ended || extend(matcher, COMPLETION_MAX, true, &answer);
        if (completed) check_text(json.root, &answer, text);
        if (completed) write_line(lines, json.root, &answer, !ended);
        counts->ended += ended;
        counts->completed += completed && !ended;
        counts->unfinished += !completed;
        tt_grammar_matcher_destroy(matcher);
    }
    tt_grammar_release(grammar);
    tt_json_deinit(&json);
    tt_str_deinit(&source);
    tt_str_deinit(&answer);
}

static void test_random_schemas(void **state)
{
    const char *wanted = getenv("TT_GRAMMAR_SCHEMAS"), *path = getenv("TT_GRAMMAR_LINES");
    int count = wanted != NULL ? atoi(wanted) : SCHEMAS;
    FILE *lines = path != NULL ? fopen(path, "w") : NULL;
    struct counts counts = {0};
    struct tt_str text = {0};
    (void)state;
    make_texts(texts, bytes);
    test_must(tt_vocabulary_of_texts(texts, VOCABULARY, &vocabulary));
    for (int i = 0; i < count; i++) {
        rng = tt_rng_derive(tt_rng_make(46), "schemas");
        drawn = (uint64_t)i << 20;
        tt_str_clear(&text);
        put_root(&text);
        check_schema(tt_str_text(&text), lines, &counts);
    }
    printf("%d schemas, %d compiled, %d texts ended, %d were completed, %d were not\n", count,
           counts.compiled, counts.ended, counts.completed, counts.unfinished);
    assert_true(counts.compiled > count * 8 / 10 && counts.ended > count / 4 &&
                counts.completed > count / 8 && counts.unfinished <= count / 100);
    if (lines != NULL) fclose(lines);
    tt_str_deinit(&text);
    tt_vocabulary_destroy(vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_schemas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
