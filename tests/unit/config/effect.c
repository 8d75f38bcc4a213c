/* Settings that cannot act as they are given: of another axis' word, without what they need, paths in stores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/str.h"
#include "config/settings.h"

struct target {
    int kind, manner, size;
    bool fast;
    int eager;
    int64_t count, stride, gap;
    double share, tail;
    const char *sweet, *folder, *result, *sources, *list, *again;
};

#define FIELD(member) .offset = offsetof(struct target, member)

/* clang-format off */
static const struct tt_setting rows[] = {
    {.name = "kind", .type = TT_SETTING_CHOICE, FIELD(kind), .default_text = "plant", .choices = "plant animal",
     .is_axis = true},
    {.name = "manner", .type = TT_SETTING_CHOICE, FIELD(manner), .default_text = "tame", .choices = "tame wild",
     .is_axis = true, .of = "animal"},
    {.name = "sweet", .type = TT_SETTING_STRING, FIELD(sweet), .default_text = "no", .of = "plant"},
    {.name = "fast", .type = TT_SETTING_BOOL, FIELD(fast), .default_text = "false", .of = "wild"},
    {.name = "eager", .type = TT_SETTING_TRISTATE, FIELD(eager)},
    {.name = "size", .type = TT_SETTING_CHOICE, FIELD(size), .default_text = "small", .choices = "small large"},
    {.name = "count", .type = TT_SETTING_INT, FIELD(count), .default_text = "0"},
    {.name = "stride", .type = TT_SETTING_INT, FIELD(stride), .default_text = "1", .needs = "eager size=large"},
    {.name = "gap", .type = TT_SETTING_INT, FIELD(gap), .default_text = "1", .needs = "!size=large+count"},
    {.name = "share", .type = TT_SETTING_DOUBLE, FIELD(share), .default_text = "0", .needs = "!count"},
    {.name = "tail", .type = TT_SETTING_DOUBLE, FIELD(tail), .default_text = "0", .needs = "another_command"},
    {.name = "folder", .type = TT_SETTING_STRING, FIELD(folder), .path = TT_PATH_HUB},
    {.name = "result", .type = TT_SETTING_STRING, FIELD(result), .path = TT_PATH_WRITE},
    {.name = "sources", .type = TT_SETTING_JSON, FIELD(sources), .path = TT_PATH_MIXTURE},
    {.name = "list", .type = TT_SETTING_JSON, FIELD(list), .path = TT_PATH_READ},
    {.name = "again", .type = TT_SETTING_STRING, FIELD(again), .path = TT_PATH_READ, .path_words = "true latest"},
    {.name = NULL},
};
/* clang-format on */

static const struct tt_setting_section section = {"Test", rows, 0};

static void keep_warning(void *context, enum tt_log_level level, const char *message)
{
    if (level == TT_LOG_WARNING) assert_int_equal(tt_str_printf(context, "%s\n", message), TT_OK);
}

/* What a call with the pairs `given` of flags, and a file with `yaml` where it is not NULL, says: its error, else its
 * warnings. */
static void expect(const char *yaml, const char *const *given, const char *wanted)
{
    struct target target = {0};
    struct tt_settings *settings = NULL;
    struct tt_str said = {0};
    assert_int_equal(tt_settings_create(&section, 1, &target, sizeof target, &settings), TT_OK);
    tt_log_set_sink(keep_warning, &said);
    tt_status status = TT_OK;
    if (yaml != NULL) status = tt_settings_parse_yaml(settings, yaml, strlen(yaml), "f.yaml");
    for (; status == TT_OK && *given != NULL; given += 2)
        status = tt_settings_set(settings, given[0], given[1], "--flag");
    if (status == TT_OK) status = tt_settings_settle(settings);
    if (status == TT_OK) status = tt_settings_check(settings);
    if (status != TT_OK) {
        char text[1024];
        assert_int_equal(status, TT_ERR_USAGE);
        (void)tt_error_format(tt_error_last(), text, sizeof text);
        assert_int_equal(tt_str_append_text(&said, text), TT_OK);
        tt_error_clear();
    }
    tt_log_set_sink(NULL, NULL);
    if (wanted == NULL)
        assert_string_equal(tt_str_text(&said), "");
    else if (strstr(tt_str_text(&said), wanted) == NULL)
        fail_msg("'%s' is not in: %s", wanted, tt_str_text(&said));
    tt_str_deinit(&said);
    tt_settings_destroy(settings);
}

#define GIVEN(...) ((const char *const[]){__VA_ARGS__, NULL})
static const char *const nothing[] = {NULL};

static void of_another_word(void **state)
{
    (void)state;
    expect(NULL, GIVEN("sweet", "yes"), NULL);
    expect(NULL, GIVEN("sweet", "yes", "kind", "animal"), "sweet is given, and the kind is animal");
    expect(NULL, GIVEN("sweet", "no", "kind", "animal"), "set kind: plant, or leave sweet out (--flag)");
    expect(NULL, GIVEN("kind", "animal", "manner", "wild", "fast", "true"), NULL);
    expect(NULL, GIVEN("kind", "animal", "fast", "true"), "fast is given, and the manner is tame");
    expect(NULL, GIVEN("fast", "false"), "fast is given, and the kind is plant");
    expect(NULL, GIVEN("fast", "true"), "it is for manner: wild; leave it out");
    expect(NULL, GIVEN("manner", "tame"), "manner is given, and the kind is plant");
}

/* Two words have a setting of one name, each with a field, a default and a help; a value is for both. */
static void of_two_owners(void **state)
{
    (void)state;
    struct owned {
        int kind;
        double plant, animal;
    } target = {0};
    struct tt_settings *settings = NULL;
    struct tt_str text = {0};
    static const struct tt_setting
        axis[] = {{.name = "kind",
                   .type = TT_SETTING_CHOICE,
                   .offset = offsetof(struct owned, kind),
                   .default_text = "fungus",
                   .choices = "fungus plant animal",
                   .is_axis = true},
                  {.name = NULL}},
        plant[] = {{.name = "speed", .type = TT_SETTING_DOUBLE, .default_text = "0.5", .of = "plant"},
                   {.name = NULL}},
        animal[] = {{.name = "speed", .type = TT_SETTING_DOUBLE, .default_text = "9", .of = "animal"},
                    {.name = NULL}};
    const struct tt_setting_section sections[] = {{"Rows", axis, 0},
                                                  {"Rows", plant, offsetof(struct owned, plant)},
                                                  {"Rows", animal, offsetof(struct owned, animal)},
                                                  {"Rows", plant, offsetof(struct owned, animal)}};
    assert_int_equal(tt_settings_create(sections, 4, &target, sizeof target, &settings), TT_ERR_INTERNAL);
    assert_int_equal(tt_settings_create(sections, 3, &target, sizeof target, &settings), TT_OK);
    assert_true(target.plant == 0.5 && target.animal == 9);
    assert_false(tt_setting_repeats(sections, 1, plant));
    assert_true(tt_setting_repeats(sections, 2, animal));
    assert_int_equal(tt_settings_set(settings, "speed", "3", "--speed"), TT_OK);
    assert_true(target.plant == 3 && target.animal == 3);
    assert_int_equal(tt_settings_check(settings), TT_ERR_USAGE);
    assert_string_equal(tt_error_last()->message, "speed is given, and the kind is fungus");
    assert_non_null(strstr(tt_error_last()->hint, "set kind: plant or animal, or leave speed out"));
    assert_int_equal(tt_settings_set(settings, "kind", "animal", "--kind"), TT_OK);
    assert_int_equal(tt_settings_check(settings), TT_OK);
    assert_int_equal(tt_settings_write_yaml(settings, &text), TT_OK);
    const char *line = strstr(tt_str_text(&text), "speed: 3");
    assert_non_null(line);
    assert_null(strstr(line + 1, "speed: "));
    tt_str_deinit(&text);
    tt_settings_destroy(settings);
}

/* A resolved file lists every setting, also those that have no effect. */
static void defaults_in_files(void **state)
{
    (void)state;
    expect("kind: animal\nsweet: 'no'\nfast: false\n", nothing, NULL);
    expect("kind: animal\nsweet: very\n", nothing, "sweet is given, and the kind is animal");
    expect("stride: 1\ngap: 1\n", nothing, NULL);
    expect("stride: 2\n", nothing, "stride has no effect: it needs eager or size large (f.yaml line 1)");
    expect(NULL, GIVEN("stride", "1"), "stride has no effect");
}

static void without_what_it_needs(void **state)
{
    (void)state;
    expect(NULL, GIVEN("stride", "2", "eager", "true"), NULL);
    expect(NULL, GIVEN("stride", "2", "size", "large"), NULL);
    expect(NULL, GIVEN("stride", "2", "eager", "false"), "stride has no effect");
    expect(NULL, GIVEN("gap", "2", "count", "3"), NULL);
    expect(NULL, GIVEN("gap", "2"), "gap has no effect: it needs size other than large and count (--flag)");
    expect(NULL, GIVEN("gap", "2", "count", "3", "size", "large"), "gap has no effect");
    expect(NULL, GIVEN("gap", "2", "count", "-1"), "gap has no effect");
    expect(NULL, GIVEN("share", "0.5"), NULL);
    expect(NULL, GIVEN("share", "0.5", "count", "3"), "share has no effect: it needs no count (--flag)");
    expect(NULL, GIVEN("tail", "0.5"), NULL);
}

static void paths_in_stores(void **state)
{
    (void)state;
    static const char *const stores[] = {"s3://b/x",      "gs://b/x",   "hf://b/x",     "https://h/x",
                                         "file:///tmp/x", "S3A://b/x/", "abfs+x.y://c", "a, s3://b/x"};
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        expect(NULL, GIVEN("folder", stores[i]), ":// is not supported");
        expect(NULL, GIVEN("result", stores[i]), ":// is not supported");
        expect(NULL, GIVEN("list", stores[i]), ":// is not supported");
        expect(NULL, GIVEN("again", stores[i]), ":// is not supported");
        expect(NULL, GIVEN("sweet", stores[i]), NULL);
    }
    expect("result: s3://b/x\n", nothing,
           "f.yaml line 1: result 's3://b/x' is no path: s3:// is not supported");
    expect(NULL, GIVEN("folder", "hf://b/x"), "trimtab download");
    expect(NULL, GIVEN("folder", "file:///tmp/x"), "give the path alone: /tmp/x");
    expect(NULL, GIVEN("sources", "[{\"path\": \"x\"}, {\"path\": \"s3://b/x\"}]"),
           "sources 's3://b/x' is no path");
    expect(NULL, GIVEN("sources", "[{\"path\": \"x\", \"data_files\": \"gs://b/*\"}]"),
           "gs:// is not supported");
    expect(NULL, GIVEN("sources", "[{\"path\": \"x\", \"split\": \"s3://b\"}]"), NULL);
    expect(NULL, GIVEN("list", "{\"a\": \"s3://b/x\"}"), NULL);
    expect(NULL, GIVEN("folder", "a/b://c", "result", "://x", "again", "3://x"), NULL);
}

static void values_that_are_paths(void **state)
{
    (void)state;
    const struct tt_setting *again = NULL, *list = NULL, *sweet = NULL;
    for (const struct tt_setting *row = rows; row->name != NULL; row++) {
        if (strcmp(row->name, "again") == 0) again = row;
        if (strcmp(row->name, "list") == 0) list = row;
        if (strcmp(row->name, "sweet") == 0) sweet = row;
    }
    assert_true(tt_setting_is_path(again, "checkpoint-5") && tt_setting_is_path(list, "a.json"));
    assert_false(tt_setting_is_path(again, "True") || tt_setting_is_path(again, "latest"));
    assert_false(tt_setting_is_path(again, NULL) || tt_setting_is_path(again, ""));
    assert_false(tt_setting_is_path(list, "{}") || tt_setting_is_path(list, "[]"));
    assert_false(tt_setting_is_path(sweet, "a.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_another_word),   cmocka_unit_test(of_two_owners),
        cmocka_unit_test(defaults_in_files), cmocka_unit_test(without_what_it_needs),
        cmocka_unit_test(paths_in_stores),   cmocka_unit_test(values_that_are_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
