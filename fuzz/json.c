/* JSON: parsing, the getters on the result, and writing: written text must parse to the same value. An outline
 * fails as the whole document does, and its values are the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static void get(const struct tt_json *json, const struct tt_json_value *value)
{
    int64_t integer;
    double real;
    bool boolean;
    const char *text;
    const struct tt_json_value *child;
    (void)!tt_json_int(json, value, "a", &integer);
    (void)!tt_json_double(json, value, "a", &real);
    (void)!tt_json_bool(json, value, "a", &boolean);
    (void)!tt_json_opt_string(json, value, "a", &text);
    (void)!tt_json_array(json, value, "a", &child);
    if (tt_json_object(json, value, "a", &child) == TT_OK) get(json, child);
}

static tt_status parse(const char *text, size_t bytes, struct tt_json *json)
{
    return tt_json_parse_source(
        &(struct tt_json_source){.text = text, .bytes = bytes, .origin = "fuzz", .nul = true}, json);
}

static void write_and_read(const struct tt_json_value *value, int indent)
{
    struct tt_str text = {0};
    struct tt_json again = {0};
    if (tt_json_write(value, indent, indent > 0, &text) != TT_OK) abort();
    if (parse(text.data, text.bytes, &again) != TT_OK || !tt_json_equal(value, again.root)) abort();
    tt_json_deinit(&again);
    tt_str_deinit(&text);
}

/* An editable copy is equal, and every member can be removed from it. */
static void copy_and_empty(struct tt_json *json)
{
    struct tt_json_value *copy = tt_json_copy(json->root);
    if (copy == NULL || !tt_json_equal(copy, json->root)) abort();
    for (size_t left = tt_json_is_object(copy) && tt_json_count(copy) < 100 ? tt_json_count(copy) : 0;
         left > 0; left--) {
        struct tt_span key = tt_json_member(copy, left / 2).key;
        if (strlen(key.data) != key.bytes) break;
        char *name = strdup(key.data);
        if (name == NULL || !tt_json_remove(copy, name) || tt_json_get(copy, name) != NULL) abort();
        free(name);
    }
    tt_json_release(copy);
}

static bool is_container(const struct tt_json_value *value)
{
    return tt_json_is_list(value) || tt_json_is_object(value);
}

/* Walks the elements of an outlined list up to the first that is no number and no word. */
static void walk(const struct tt_json_value *whole, const struct tt_json_value *list)
{
    struct tt_json_walk walk = tt_json_walk(list);
    enum tt_json_type type;
    int64_t integer;
    size_t i = 0;
    if (tt_json_count(list) != tt_json_count(whole) || tt_json_at(list, 0) != NULL) abort();
    for (; tt_json_walk_next(&walk, &type, &integer); i++) {
        const struct tt_json_value *element = tt_json_at(whole, i);
        if (element == NULL || tt_json_type(element) != type || tt_json_integer(element) != integer) abort();
        if (is_container(element) || tt_json_is_string(element)) return;
    }
    if (i != tt_json_count(whole)) abort();
}

static void compare_outlined(const struct tt_json_value *whole, const struct tt_json_value *value)
{
    if (tt_json_type(whole) != tt_json_type(value)) abort();
    if (tt_json_is_list(whole))
        walk(whole, value);
    else if (!tt_json_is_object(whole) && !tt_json_equal(whole, value))
        abort();
}

/* Parses an outline with the members named "a" only, or with all. */
static void outline(const char *text, size_t bytes, bool all)
{
    const struct tt_span names[] = {{"a", 1}};
    struct tt_json whole = {0}, outline = {0};
    struct tt_json_source source = {.text = text, .bytes = bytes, .origin = "fuzz", .nul = true};
    struct tt_error error = {0};
    tt_status status = tt_json_parse_source(&source, &whole);
    if (status != TT_OK) error = *tt_error_last();
    source.outline = true;
    source.members = all ? NULL : names;
    source.member_count = 1;
    if (tt_json_parse_source(&source, &outline) != status) abort();
    if (status != TT_OK && strcmp(error.message, tt_error_last()->message) != 0) abort();
    if (status == TT_OK && !tt_json_is_object(whole.root)) compare_outlined(whole.root, outline.root);
    size_t kept = 0;
    for (size_t i = 0; tt_json_is_object(whole.root) && i < tt_json_count(whole.root); i++) {
        struct tt_json_member member = tt_json_member(whole.root, i);
        if (!all && (member.key.bytes != 1 || member.key.data[0] != 'a')) continue;
        struct tt_json_member same = tt_json_member(outline.root, kept++);
        if (same.key.bytes != member.key.bytes || memcmp(same.key.data, member.key.data, same.key.bytes) != 0)
            abort();
        compare_outlined(member.value, same.value);
    }
    if (tt_json_is_object(whole.root) && tt_json_count(outline.root) != kept) abort();
    tt_json_deinit(&whole);
    tt_json_deinit(&outline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_json json = {0};
    /* A separate block, so that a sanitizer detects a read beyond its end. */
    char *text = malloc(size + 1);
    if (text == NULL) abort();
    memcpy(text + 1, data, size);
    if (tt_json_parse(text + 1, size, "fuzz", &json) == TT_OK) get(&json, json.root);
    tt_json_deinit(&json);
    /* Vocabularies may have keys with U+0000. */
    if (parse(text + 1, size, &json) == TT_OK) {
        write_and_read(json.root, 0);
        if (size < 4096) {
            write_and_read(json.root, 2);
            copy_and_empty(&json);
        }
    }
    tt_json_deinit(&json);
    outline(text + 1, size, false);
    outline(text + 1, size, true);
    free(text);
    return 0;
}
