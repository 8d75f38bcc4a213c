/* What the rows of all commands say of their settings is whole: paths, what a value changes, for whom it is, what it
 * needs. Walks the tables, so that a row that is added is tested too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/commands.h"
#include "config/store.h"
#include "data/settings.h"
#include "job/settings.h"
#include "model/settings.h"
#include "optim/settings.h"

struct table {
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    size_t count;
};

static const struct tt_setting *find(const struct table *table, const char *name)
{
    for (size_t s = 0; s < table->count; s++)
        for (const struct tt_setting *row = table->sections[s].rows; row->name != NULL; row++)
            if (strcmp(row->name, name) == 0) return row;
    return NULL;
}

/* Calls `check` with each row of each command. */
static void each_row(void (*check)(const char *command, const struct tt_setting *row))
{
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++) {
        struct table table = {.count = 0};
        table.count = tt_command_sections(command, table.sections);
        for (size_t s = 0; s < table.count; s++)
            for (const struct tt_setting *row = table.sections[s].rows; row->name != NULL; row++)
                check(command->name, row);
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

static bool names_a_path(const char *name)
{
    static const char *const ends[] = {"_path", "_dir", "_file", "_folder", "_json"}, *const names[] = {
                                                                                          "dataset_name",
                                                                                          "datasets",
                                                                                          "eval_dataset",
                                                                                          "annotations",
                                                                                          "eval_annotations"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static bool is_text(const struct tt_setting *row)
{
    return row->type == TT_SETTING_STRING || row->type == TT_SETTING_JSON;
}

static void check_path(const char *command, const struct tt_setting *row)
{
    bool acts = row->unneeded == NULL && row->offset != TT_SETTING_NO_FIELD;
    if (is_text(row) && acts && names_a_path(row->name) && row->path == TT_PATH_NONE)
        fail_msg("%s: %s has the name of a path, and its row no .path", command, row->name);
    if (row->path != TT_PATH_NONE && (!is_text(row) || !acts))
        fail_msg("%s: %s has a .path and no text for it", command, row->name);
    if ((row->path == TT_PATH_MIXTURE && row->type != TT_SETTING_JSON) ||
        (row->path_words != NULL && row->path == TT_PATH_NONE))
        fail_msg("%s: %s is not a path of this kind", command, row->name);
}

static void paths_are_said(void **state)
{
    (void)state;
    each_row(check_path);
}

/* Rows of the tables by which a training computes: what another value changes is said, if only that it is nothing. */
static void changes_are_said(void **state)
{
    (void)state;
    static const struct tt_setting *const tables[] = {
        tt_data_settings, tt_lora_settings, tt_optim_settings, tt_run_settings, tt_task_settings,
#define TASK_SETTINGS(name, title) tt_task_##name##_settings,
#include "job/tasks.def"
    };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct tt_setting *row = tables[t]; row->name != NULL; row++)
            if (row->unneeded == NULL && row->offset != TT_SETTING_NO_FIELD && row->changes == 0)
                fail_msg("%s: its row has no .changes", row->name);
}

static void check_changes(const char *command, const struct tt_setting *row)
{
    unsigned others = row->changes & ~(unsigned)TT_CHANGES_OTHER;
    if ((row->changes & TT_CHANGES_OTHER) != 0 && others != 0)
        fail_msg("%s: %s changes something, and nothing", command, row->name);
    if (row->changes != 0 && row->offset == TT_SETTING_NO_FIELD)
        fail_msg("%s: %s has no field that could change something", command, row->name);
    if (row->local && (row->changes & (TT_CHANGES_ROWS | TT_CHANGES_RESULT | TT_CHANGES_RESULT_IF_SET)) != 0)
        fail_msg("%s: %s may differ between processes, and changes the result", command, row->name);
}

static void changes_are_possible(void **state)
{
    (void)state;
    each_row(check_changes);
}

/* The words of `of` are all of one axis of the trainings. */
static void check_of(const char *command, const struct tt_setting *row)
{
    struct table train = {.count = 0};
    size_t found = 0;
    if (row->of == NULL) return;
    train.count = tt_command_sections(tt_command_find("train"), train.sections);
    for (size_t s = 0; s < train.count; s++)
        for (const struct tt_setting *axis = train.sections[s].rows; axis->name != NULL; axis++) {
            if (!axis->is_axis) continue;
            size_t words = 0, here = 0;
            for (const char *at = row->of; *at != '\0'; at += strspn(at, " "), words++) {
                char word[64];
                size_t bytes = strcspn(at, " ");
                assert_true(bytes < sizeof word);
                memcpy(word, at, bytes);
                word[bytes] = '\0';
                here += tt_words_find(axis->choices, word, NULL);
                at += bytes;
            }
            found += here == words;
        }
    if (found != 1)
        fail_msg("%s: %s is of '%s', which are words of %zu axes", command, row->name, row->of, found);
}

static void axes_have_the_words(void **state)
{
    (void)state;
    each_row(check_of);
}

/* Each condition names a setting of some command with this row, and a value that it can have. */
static bool condition_is_known(const struct table *table, const char *condition)
{
    char text[100];
    strncpy(text, condition + (condition[0] == '!'), sizeof text - 1);
    text[sizeof text - 1] = '\0';
    char *value = strchr(text, '=');
    if (value != NULL) *value++ = '\0';
    const struct tt_setting *row = find(table, text);
    if (row == NULL) return false;
    return value == NULL || row->choices == NULL || tt_words_find(row->choices, value, NULL);
}

static void needs_are_settings(void **state)
{
    (void)state;
    size_t seen = 0;
    for (const struct tt_command *command = tt_commands; command->name != NULL; command++) {
        struct table table = {.count = 0}, train = {.count = 0};
        table.count = tt_command_sections(command, table.sections);
        train.count = tt_command_sections(tt_command_find("train"), train.sections);
        for (size_t s = 0; s < table.count; s++)
            for (const struct tt_setting *row = table.sections[s].rows; row->name != NULL; row++) {
                char needs[200] = "", *rest = needs;
                if (row->needs == NULL) continue;
                assert_true(strlen(row->needs) < sizeof needs);
                strncpy(needs, row->needs, sizeof needs - 1);
                for (char *one = strtok_r(needs, " +", &rest); one != NULL;
                     one = strtok_r(NULL, " +", &rest), seen++)
                    if (!condition_is_known(&table, one) && !condition_is_known(&train, one))
                        fail_msg("%s: %s needs '%s', which is no setting or value", command->name, row->name,
                                 one);
            }
    }
    assert_true(seen > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_said),       cmocka_unit_test(changes_are_said),
        cmocka_unit_test(changes_are_possible), cmocka_unit_test(axes_have_the_words),
        cmocka_unit_test(needs_are_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
