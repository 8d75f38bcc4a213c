/* Every field of the argument classes of transformers and TRL (arguments/make_fields.py) at its default and at another
 * value: a setting, which takes both; a key without effect, with the reason; or a refusal, with the reason. None is
 * unknown. docs/training-arguments.md says so of each: this program writes the page with --write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "config/store.h"
#include "job/resolve.h"

#define PAGE TT_TEST_ROOT "/../docs/training-arguments.md"
#define MUST(call) assert_int_equal((call), TT_OK)

static const struct {
    const char *name, *title;
} classes[] = {
    {"TrainingArguments", "`TrainingArguments`"},
    {"_BaseConfig", "What all of TRL's trainers change in it"},
    {"SFTConfig", "`SFTConfig`"},
    {"DPOConfig", "`DPOConfig`"},
    {"ModelConfig", "`ModelConfig`"},
    {"ScriptArguments", "`ScriptArguments`"},
};

enum { CLASSES = sizeof classes / sizeof *classes };

/* The outcome of a value. */
enum outcome { TAKEN, REFUSED };

struct field {
    const char *class, *name;
    const struct tt_json_value *by_default, *other;
};

static void read_fields(struct tt_json *json)
{
    MUST(tt_json_read(TT_TEST_ROOT "/golden/arguments/fields.json", 1 << 20, json));
}

static struct tt_settings *create(struct tt_job_spec *spec)
{
    struct tt_settings *settings = NULL;
    MUST(tt_job_settings_create(TT_JOB_TRAIN, spec, sizeof *spec, &settings));
    return settings;
}

static void write_value(const struct tt_json_value *value, struct tt_str *text)
{
    if (tt_json_is_string(value))
        MUST(tt_str_append_text(text, tt_json_text(value)));
    else
        MUST(tt_json_write(value, 0, false, text));
}

/* Sets one value; of a setting that takes it, `changed` says whether its value is another than its default here. */
static enum outcome give(const struct field *field, const struct tt_json_value *value, bool *changed)
{
    struct tt_job_spec spec;
    struct tt_settings *settings = create(&spec);
    struct tt_str text = {0};
    enum outcome outcome = TAKEN;
    write_value(value, &text);
    tt_error_clear();
    if (tt_settings_set(settings, field->name, tt_str_text(&text), "arguments.yaml") != TT_OK) {
        const struct tt_error *error = tt_error_last();
        if (strstr(error->message, "there is no setting") != NULL)
            fail_msg("%s.%s: %s", field->class, field->name, error->message);
        if (error->hint[0] == '\0')
            fail_msg("%s.%s is refused without a reason: %s", field->class, field->name, error->message);
        outcome = REFUSED;
    }
    *changed = outcome == TAKEN && !tt_settings_has_default(settings, field->name);
    tt_error_clear();
    tt_str_deinit(&text);
    tt_settings_destroy(settings);
    return outcome;
}

static const struct tt_setting *find_row(const char *name)
{
    struct tt_job_spec spec;
    struct tt_settings *settings = create(&spec);
    const struct tt_setting_entry *entry = tt_settings_find(settings, name);
    const struct tt_setting *row = entry != NULL ? entry->row : NULL; /* of a table, which stays */
    tt_settings_destroy(settings);
    return row;
}

static bool is_setting(const struct tt_setting *row)
{
    return row->unneeded == NULL && row->help != NULL;
}

static void check_field(const struct field *field)
{
    bool by_default, changed;
    const struct tt_setting *row = find_row(field->name);
    if (row == NULL) fail_msg("%s.%s is unknown", field->class, field->name);
    if (give(field, field->by_default, &by_default) == REFUSED)
        fail_msg("the default of %s.%s is refused", field->class, field->name);
    enum outcome outcome = give(field, field->other, &changed);
    if (row->unneeded != NULL && row->only == NULL && outcome == REFUSED)
        fail_msg("%s.%s has no effect and refuses a value", field->class, field->name);
    if (is_setting(row) && row->only == NULL && (outcome == REFUSED || changed + by_default == 0))
        fail_msg("%s.%s is a setting and does not take another value", field->class, field->name);
    if (!is_setting(row) && row->unneeded == NULL && outcome != REFUSED)
        fail_msg("%s.%s is supported at %s only and takes another value", field->class, field->name,
                 row->only);
}

typedef void field_visit(const struct field *field, void *context);

static void visit_class(const struct tt_json *json, const char *class, field_visit *visit, void *context)
{
    const struct tt_json_value *fields = tt_json_get(json->root, class), *pair;
    struct field field = {.class = class};
    assert_true(tt_json_count(fields) > 5);
    for (size_t member = 0; tt_json_next_member(fields, &member, &field.name, &pair);) {
        field.by_default = tt_json_at(pair, 0);
        field.other = tt_json_at(pair, 1);
        visit(&field, context);
    }
}

static void check_visited(const struct field *field, void *context)
{
    ++*(int *)context;
    check_field(field);
}

static void every_field_is_applied_without_effect_or_refused(void **state)
{
    struct tt_json json = {0};
    int count = 0;
    (void)state;
    read_fields(&json);
    for (int i = 0; i < CLASSES; i++) visit_class(&json, classes[i].name, check_visited, &count);
    assert_true(count > 180);
    tt_json_deinit(&json);
}

/* ---- The page ---- */

static void append_cell(struct tt_str *page, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|') MUST(tt_str_append_char(page, '\\'));
        MUST(tt_str_append_char(page, *text));
    }
}

/* "`null`, `false`" of "null false" */
static void append_words(struct tt_str *page, const char *words)
{
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, " ");
        MUST(tt_str_printf(page, "%s`%.*s`", at == words ? "" : ", ", (int)bytes, at));
        at += bytes;
    }
}

/* A switch that is supported at one value only is a refusal. */
static bool takes_more(const struct tt_setting *row)
{
    return is_setting(row) && (row->only == NULL || row->type != TT_SETTING_BOOL);
}

static void append_outcome(struct tt_str *page, const struct tt_setting *row, const char *name)
{
    if (row->unneeded != NULL) {
        MUST(tt_str_append_text(page, "no effect"));
        if (row->only != NULL) MUST(tt_str_append_text(page, "; refused but for "));
    } else if (takes_more(row)) {
        MUST(tt_str_append_text(page, "applied"));
        if (strcmp(row->name, name) != 0) MUST(tt_str_printf(page, " as `%s`", row->name));
        if (row->only != NULL) MUST(tt_str_append_text(page, ", at "));
    } else {
        MUST(tt_str_append_text(page, "refused but for "));
    }
    if (row->only != NULL) append_words(page, row->only);
}

static void append_reason(struct tt_str *page, const struct tt_setting *row)
{
    if (row->unneeded != NULL) append_cell(page, row->unneeded);
    if (takes_more(row)) append_cell(page, row->help);
    if (row->only == NULL || row->only_reason == NULL) return;
    if (row->unneeded != NULL) append_cell(page, "; other values: ");
    if (takes_more(row)) append_cell(page, " Other values: ");
    append_cell(page, row->only_reason);
}

static void append_field(const struct field *field, void *context)
{
    struct tt_str *page = context, value = {0};
    const struct tt_setting *row = find_row(field->name);
    assert_non_null(row);
    write_value(field->by_default, &value);
    MUST(tt_str_printf(page, "| `%s` | ", field->name));
    if (value.bytes > 0) MUST(tt_str_printf(page, "`%s`", tt_str_text(&value)));
    MUST(tt_str_append_text(page, " | "));
    append_outcome(page, row, field->name);
    MUST(tt_str_append_text(page, " | "));
    append_reason(page, row);
    MUST(tt_str_append_text(page, " |\n"));
    tt_str_deinit(&value);
}

static void compose(struct tt_str *page)
{
    struct tt_json json = {0};
    read_fields(&json);
    const struct tt_json_value *versions = tt_json_get(json.root, "versions");
    MUST(tt_str_printf(page,
                       "<!-- Generated: build/tests/test_golden_arguments --write -->\n"
                       "# Arguments of transformers and TRL\n\n"
                       "Every field of the argument classes of transformers %s and TRL %s, with its default "
                       "there, and its meaning "
                       "in\n`trimtab train`. *applied*: it is a setting ([settings.md](settings.md) has its "
                       "default here). *no "
                       "effect*: it is\naccepted, and the log says why nothing follows from it. *refused*: "
                       "the run does not begin "
                       "with values other than those\nthat are named, which turn the feature off. Keys of "
                       "PEFT's `LoraConfig`: "
                       "[lora.md](lora.md); numbers and defaults that\ndiffer: [trl.md](trl.md).\n",
                       tt_json_text(tt_json_get(versions, "transformers")),
                       tt_json_text(tt_json_get(versions, "trl"))));
    for (int i = 0; i < CLASSES; i++) {
        MUST(tt_str_printf(
            page, "\n## %s\n\n| key | default there | here | meaning or reason |\n|---|---|---|---|\n",
            classes[i].title));
        visit_class(&json, classes[i].name, append_field, page);
    }
    tt_json_deinit(&json);
}

static void page_says_the_same(void **state)
{
    struct tt_str wanted = {0}, page = {0};
    (void)state;
    compose(&wanted);
    MUST(tt_file_read(PAGE, 1 << 20, &page));
    if (strcmp(tt_str_text(&wanted), tt_str_text(&page)) != 0)
        fail_msg("docs/training-arguments.md is out of date: build/tests/test_golden_arguments --write");
    tt_str_deinit(&wanted);
    tt_str_deinit(&page);
}

static int write_page(void)
{
    struct tt_str page = {0};
    compose(&page);
    FILE *file = fopen(PAGE, "w");
    bool written = file != NULL && fwrite(page.data, 1, page.bytes, file) == page.bytes;
    if (file != NULL) written &= fclose(file) == 0;
    tt_str_deinit(&page);
    return written ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_applied_without_effect_or_refused),
        cmocka_unit_test(page_says_the_same),
    };
    if (argc == 2 && strcmp(argv[1], "--write") == 0) return write_page();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
