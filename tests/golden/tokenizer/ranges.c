/* The bytes that each id stands for, against the offsets of the reference library (make_offsets.py), which counts
 * characters: a range is widened to whole characters first. Two differences are meant (docs/tokenizers.md): what is
 * put before a text stands for nothing here and for the character behind it there; what several characters were made
 * into stands for all of them here and for one of them there. Each is counted, and only tokenizers with such steps have
 * them. With another folder as argument it compares the tokenizers of that one (compare_random.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer.h"

struct counts {
    size_t folders, same, before, made;
};

struct run {
    const struct tt_tokenizer *tokenizer;
    struct tt_tokenizer_scratch *scratch;
    const char *folder;
    size_t line;
    struct counts counts;
};

/* The number of characters before byte `at`; one that it splits counts when `whole`. */
static int64_t characters(struct tt_span text, size_t at, bool whole)
{
    int64_t count = 0;
    for (size_t i = 0; i < at; i++) count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    bool splits = at < text.bytes && ((unsigned char)text.data[at] & 0xC0) == 0x80;
    return splits && !whole ? count - 1 : count;
}

static void compare(struct run *run, struct tt_span text, struct tt_byte_range range, int64_t begin,
                    int64_t end)
{
    int64_t from = characters(text, range.begin, false), to = characters(text, range.end, true);
    if (range.begin == range.end) to = from;
    if (from == begin && to == end)
        run->counts.same++;
    else if (range.begin == range.end && begin == from && end == begin + 1)
        run->counts.before++;
    else if (from <= begin && end <= to)
        run->counts.made++;
    else
        fail_msg("%s:%zu: characters %lld to %lld, not %lld to %lld, of '%s'", run->folder, run->line,
                 (long long)from, (long long)to, (long long)begin, (long long)end, text.data);
}

static void check_row(struct run *run, const struct tt_json_value *row)
{
    struct tt_span text = tt_json_span(tt_json_get(row, "text"));
    const struct tt_json_value *expected = tt_json_get(row, "ids"), *offsets = tt_json_get(row, "offsets");
    struct tt_ids ids = {0};
    struct tt_ranges ranges = {0};
    struct tt_encode_options options = {0};
    if (tt_tokenizer_encode_ranges(run->tokenizer, run->scratch, text, &options, &ids, &ranges) != TT_OK)
        fail_msg("%s:%zu: %s", run->folder, run->line, tt_error_last()->message);
    assert_int_equal(ids.count, ranges.count);
    assert_int_equal(ids.count, tt_json_count(expected));
    assert_int_equal(2 * ids.count, tt_json_count(offsets));
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(ids.data[i], tt_json_integer(tt_json_at(expected, i)));
        assert_true(ranges.data[i].begin <= ranges.data[i].end && ranges.data[i].end <= text.bytes);
        assert_true(i == 0 || (ranges.data[i].begin >= ranges.data[i - 1].begin &&
                               ranges.data[i].end >= ranges.data[i - 1].end));
        compare(run, text, ranges.data[i], tt_json_integer(tt_json_at(offsets, 2 * i)),
                tt_json_integer(tt_json_at(offsets, 2 * i + 1)));
    }
    tt_ids_deinit(&ids);
    tt_ranges_deinit(&ranges);
}

struct walk {
    const char *root;
    bool committed;
    struct counts all;
};

/* Of the committed tokenizers, those that put a character before a text. */
static bool puts_before(const char *name)
{
    const char *names[] = {"added_characters",  "llama2",  "metaspace",
                           "metaspace_prepend", "mistral", "roberta"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Only a normal form makes one character of several. */
static bool has_normal_form(const char *folder)
{
    struct tt_str text = {0};
    char *path = tt_path_join(folder, "tokenizer.json");
    assert_int_equal(tt_file_read(path, 256 << 20, &text), TT_OK);
    bool found = strstr(tt_str_text(&text), "\"NF") != NULL;
    tt_str_deinit(&text);
    tt_free(path);
    return found;
}

static void add(struct walk *walk, const struct run *run, const char *folder)
{
    printf("%s: %zu same, %zu before the text, %zu made of several\n", run->folder, run->counts.same,
           run->counts.before, run->counts.made);
    if (!has_normal_form(folder)) assert_int_equal(run->counts.made, 0);
    if (walk->committed) assert_int_equal(run->counts.before > 0, puts_before(run->folder));
    walk->all.folders++;
    walk->all.same += run->counts.same;
    walk->all.before += run->counts.before;
    walk->all.made += run->counts.made;
}

static tt_status check_folder(void *context, const char *name)
{
    struct walk *walk = context;
    char folder[1024];
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_str rows = {0};
    snprintf(folder, sizeof folder, "%s/%s", walk->root, name);
    char *path = tt_path_join(folder, "offsets.jsonl");
    if (!tt_path_exists(path)) goto out;
    struct run run = {.folder = name};
    if (tt_tokenizer_load(folder, &tokenizer) != TT_OK) fail_msg("%s: %s", name, tt_error_last()->message);
    run.tokenizer = tokenizer;
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &run.scratch), TT_OK);
    assert_int_equal(tt_file_read(path, 256 << 20, &rows), TT_OK);
    char *end;
    for (char *line = rows.data; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct tt_json row = {0};
        struct tt_json_source source = {
            .text = line, .bytes = (size_t)(end - line), .origin = name, .nul = true};
        run.line++;
        if (tt_json_parse_source(&source, &row) != TT_OK)
            fail_msg("line %zu: %s", run.line, tt_error_last()->message);
        check_row(&run, row.root);
        tt_json_deinit(&row);
    }
    assert_true(run.line > 10);
    add(walk, &run, folder);
    tt_tokenizer_scratch_destroy(run.scratch);
out:
    tt_tokenizer_destroy(tokenizer);
    tt_str_deinit(&rows);
    tt_free(path);
    return TT_OK;
}

static void all_ranges(void **state)
{
    struct walk walk = {.root = *state == NULL ? TT_TEST_ROOT "/golden/tokenizer" : *state,
                        .committed = *state == NULL};
    assert_int_equal(tt_dir_list(walk.root, check_folder, &walk), TT_OK);
    assert_true(walk.all.folders >= (*state == NULL ? 30 : 1));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(all_ranges, argc > 1 ? argv[1] : NULL)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
