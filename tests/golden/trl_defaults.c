/* Every default of SFTConfig (with TrainingArguments), ModelConfig, ScriptArguments and LoraConfig, as the
 * installed releases have them (trl/make_trl.py), is known here and means what leaving the key out means; but
 * for the rows of the table "Defaults that differ" in docs/trl.md, each with both values and a reason. */
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

enum { DIFFERENCES_MAX = 40 };

struct difference {
    char library[40], name[60], theirs[80], ours[80];
    bool met;
};

struct table {
    struct difference rows[DIFFERENCES_MAX];
    size_t count;
};

/* "| `LoraConfig` | `r` | 8 | 16 | reason |" */
static void read_row(const char *line, struct table *table)
{
    struct difference row = {.met = false};
    char reason[400];
    int fields = sscanf(line, "| `%39[^`]` | `%59[^`]` | %79[^|]| %79[^|]| %399[^|]|", row.library, row.name,
                        row.theirs, row.ours, reason);
    if (fields != 5) return;
    row.theirs[strcspn(row.theirs, " ")] = row.ours[strcspn(row.ours, " ")] = 0;
    assert_true(table->count < DIFFERENCES_MAX);
    table->rows[table->count++] = row;
}

static void read_table(struct table *table)
{
    struct tt_str text = {0};
    assert_int_equal(tt_file_read(TT_TEST_ROOT "/../docs/trl.md", 1 << 20, &text), TT_OK);
    const char *at = strstr(text.data, "## Defaults that differ");
    if (at == NULL) fail_msg("docs/trl.md has no section 'Defaults that differ'");
    const char *end = strstr(at + 3, "\n## ");
    for (; at != NULL && (end == NULL || at < end); at = strchr(at, '\n')) read_row(++at, table);
    tt_str_deinit(&text);
    assert_true(table->count > 2);
}

/* What the library's default says as the value of a flag; NULL: null, as an empty list or mapping is. */
static const char *value_text(const struct tt_json_value *value, char text[80])
{
    if (tt_json_is_object(value) || tt_json_is_list(value)) {
        bool empty = tt_json_is_object(value) ? tt_json_count(value) == 0 : tt_json_count(value) == 0;
        if (!empty) fail_msg("a default that is neither a word nor empty");
        return NULL;
    }
    if (tt_json_is_null(value)) return NULL;
    if (tt_json_is_string(value)) return tt_json_text(value);
    if (tt_json_is_bool(value)) return tt_json_is_true(value) ? "true" : "false";
    snprintf(text, 80, "%.17g", tt_json_number(value));
    return text;
}

static bool same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void report(struct table *table, const char *library, const char *name, const char *theirs,
                   const char *ours)
{
    theirs = theirs != NULL ? theirs : "null", ours = ours != NULL ? ours : "null";
    for (size_t i = 0; i < table->count; i++) {
        struct difference *row = &table->rows[i];
        if (strcmp(row->library, library) != 0 || strcmp(row->name, name) != 0) continue;
        if (strcmp(row->theirs, theirs) != 0 || strcmp(row->ours, ours) != 0)
            fail_msg("docs/trl.md has %s for %s and %s here; it is %s and %s", row->theirs, name, row->ours,
                     theirs, ours);
        row->met = true;
        return;
    }
    fail_msg("%s.%s is %s, here it is %s, and docs/trl.md does not have it", library, name, theirs, ours);
}

static void compare_key(struct table *table, const char *library, const char *name,
                        const struct tt_json_value *value)
{
    struct tt_job_spec config;
    struct tt_settings *settings = NULL;
    char text[80];
    assert_int_equal(tt_job_settings_create(TT_JOB_TRAIN, &config, sizeof config, &settings), TT_OK);
    struct tt_setting_entry *entry = tt_settings_find(settings, name);
    if (entry == NULL) fail_msg("%s.%s is not known", library, name);
    if (entry->row->unneeded == NULL) {
        const char *theirs = value_text(value, text), *ours = entry->text;
        if (tt_settings_assign(settings, entry, theirs, false, "their default") != TT_OK)
            report(table, library, name, theirs, ours);
        else if (!same(entry->text, ours))
            report(table, library, name, entry->text, ours);
    }
    tt_settings_destroy(settings);
}

static void defaults_are_theirs_or_documented(void **state)
{
    static const char *const libraries[] = {"SFTConfig", "ModelConfig", "ScriptArguments", "LoraConfig"};
    struct tt_json json = {0};
    struct table table = {.count = 0};
    (void)state;
    read_table(&table);
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/trl/defaults.json", 1 << 20, &json), TT_OK);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const char *name;
        const struct tt_json_value *value, *library = tt_json_get(json.root, libraries[i]);
        assert_true(tt_json_count(library) > 5);
        for (size_t member = 0; tt_json_next_member(library, &member, &name, &value);)
            compare_key(&table, libraries[i], name, value);
    }
    for (size_t i = 0; i < table.count; i++)
        if (!table.rows[i].met)
            fail_msg("docs/trl.md has a difference of %s.%s, and there is none", table.rows[i].library,
                     table.rows[i].name);
    tt_json_deinit(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_are_theirs_or_documented)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
