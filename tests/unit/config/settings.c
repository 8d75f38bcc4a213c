/* The machinery of settings: typing by row, sources, refusals, the resolved file. */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "config/settings.h"
#include "support/allocations.h"
#include "support/temporary.h"

enum colour { RED, GREEN, BLUE };

struct part {
    double rate;
    int64_t steps;
};

struct target {
    const char *name, *mode, *names, *key;
    int64_t count;
    bool on, gaussian, off;
    int maybe;
    int colour;
    unsigned colours;
    size_t memory;
    struct part part;
    bool print;
};

#define FIELD(member) .offset = offsetof(struct target, member)

static const struct tt_setting rows[] = {
    {.name = "name", .aliases = "old_name older", .type = TT_SETTING_STRING, FIELD(name)},
    {.name = "mode",
     .type = TT_SETTING_STRING,
     FIELD(mode),
     .default_text = "none",
     .choices = "none some all"},
    {.name = "names", .type = TT_SETTING_JSON, FIELD(names)},
    {.name = "key", .type = TT_SETTING_STRING, FIELD(key), .transient = true, .secret = true},
    {.name = "count",
     .type = TT_SETTING_INT,
     FIELD(count),
     .default_text = "-1",
     .null_text = "0",
     .minimum = -1,
     .maximum = 1000},
    {.name = "on", .type = TT_SETTING_BOOL, FIELD(on), .default_text = "true"},
    {.name = "gaussian",
     .type = TT_SETTING_BOOL,
     FIELD(gaussian),
     .default_text = "true",
     .choices = "true gaussian"},
    {.name = "off",
     .type = TT_SETTING_BOOL,
     FIELD(off),
     .default_text = "false",
     .only = "false",
     .only_reason = "because"},
    {.name = "maybe", .type = TT_SETTING_TRISTATE, FIELD(maybe)},
    {.name = "colour",
     .type = TT_SETTING_CHOICE,
     FIELD(colour),
     .default_text = "green",
     .choices = "red green blue"},
    {.name = "colours",
     .type = TT_SETTING_WORDS,
     FIELD(colours),
     .default_text = "green",
     .choices = "red green blue"},
    {.name = "memory", .type = TT_SETTING_BYTES, FIELD(memory), .default_text = "0"},
    {.name = "print", .type = TT_SETTING_BOOL, FIELD(print), .default_text = "false", .transient = true},
    TT_SETTING_ONLY("noise", DOUBLE, NULL, "null 0", "no noise"),
    TT_SETTING_ONLY("kwargs", JSON, NULL, "null {}", "no kwargs"),
    TT_SETTING_UNNEEDED("dataloader_pin_memory", "it is so"),
    {.name = NULL},
};
static const struct tt_setting part_rows[] = {
    {.name = "learning_rate",
     .type = TT_SETTING_DOUBLE,
     .offset = offsetof(struct part, rate),
     .default_text = "2e-5",
     .minimum = 0,
     .maximum = INFINITY},
    {.name = "max_steps",
     .type = TT_SETTING_INT,
     .offset = offsetof(struct part, steps),
     .default_text = "7"},
    {.name = NULL},
};
static const struct tt_setting_section sections[] = {
    {"Top", rows, 0},
    {"Part", part_rows, offsetof(struct target, part)},
};

struct fixture {
    struct target target;
    struct tt_settings *settings;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    *state = fixture;
    return tt_settings_create(sections, 2, &fixture->target, sizeof fixture->target, &fixture->settings) ==
                   TT_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    tt_settings_destroy(fixture->settings);
    free(fixture);
    return 0;
}

static tt_status yaml(struct fixture *fixture, const char *text)
{
    return tt_settings_parse_yaml(fixture->settings, text, strlen(text), "t.yaml");
}

static tt_status flags(struct fixture *fixture, const char *const *words)
{
    int count = 0;
    while (words[count] != NULL) count++;
    return tt_settings_parse_flags(fixture->settings, count, (char *const *)words, NULL);
}
#define FLAGS(...) flags(fixture, (const char *const[]){__VA_ARGS__, NULL})

static void assert_error(tt_status status, tt_status wanted, const char *message, const char *hint)
{
    char text[2000];
    tt_error_format(tt_error_last(), text, sizeof text);
    if (status != wanted) print_message("%s\n", text);
    assert_int_equal(status, wanted);
    if (strstr(text, message) == NULL) fail_msg("no '%s' in: %s", message, text);
    if (hint != NULL && strstr(tt_error_last()->hint, hint) == NULL)
        fail_msg("no '%s' in hint: %s", hint, text);
}

static void defaults_are_written(void **state)
{
    const struct target *target = &((struct fixture *)*state)->target;
    assert_null(target->name);
    assert_null(target->names);
    assert_string_equal(target->mode, "none");
    assert_int_equal(target->count, -1);
    assert_true(target->on);
    assert_false(target->gaussian);
    assert_int_equal(target->maybe, -1);
    assert_int_equal(target->colour, GREEN);
    assert_true(target->part.rate == 2e-5);
    assert_int_equal(target->part.steps, 7);
}

/* YAML 1.1 takes 2e-5 for a string, no for false, 1_0 for ten; here the row decides. */
static void yaml_is_typed_by_row(void **state)
{
    struct fixture *fixture = *state;
    const struct target *target = &fixture->target;
    static const struct {
        const char *text;
        double rate;
    } numbers[] = {{"2e-5", 2e-5}, {"2.0e-05", 2e-5}, {"1", 1}, {".5", .5},
                   {"1e3", 1000},  {"'3e-4'", 3e-4},  {"0", 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[64];
        snprintf(text, sizeof text, "learning_rate: %s\n", numbers[i].text);
        assert_int_equal(yaml(fixture, text), TT_OK);
        assert_true(target->part.rate == numbers[i].rate);
    }
    static const struct {
        const char *text;
        bool on;
    } truths[] = {{"yes", true},  {"no", false},    {"On", true},     {"OFF", false},
                  {"True", true}, {"false", false}, {"'true'", true}, {"0", false}};
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++) {
        char text[64];
        snprintf(text, sizeof text, "on: %s\n", truths[i].text);
        assert_int_equal(yaml(fixture, text), TT_OK);
        assert_int_equal(target->on, truths[i].on);
    }
    assert_int_equal(yaml(fixture, "count: 1_0\nmaybe: no\ncolour: BLUE\nmemory: 2GiB\nname: no\n"), TT_OK);
    assert_int_equal(target->count, 10);
    assert_int_equal(target->maybe, 0);
    assert_int_equal(target->colour, BLUE);
    assert_true(target->memory == (size_t)2 << 30);
    assert_string_equal(target->name, "no");
    assert_int_equal(yaml(fixture, "count: 1e2\ngaussian: gaussian\nmode: All\n"), TT_OK);
    assert_int_equal(target->count, 100);
    assert_true(target->gaussian);
    assert_string_equal(target->mode, "all");
}

static void null_follows_the_row(void **state)
{
    struct fixture *fixture = *state;
    const struct target *target = &fixture->target;
    assert_int_equal(yaml(fixture, "name: x\nnames: [a]\ncount: 5\non: false\nmaybe: true\n"), TT_OK);
    assert_int_equal(yaml(fixture, "name: null\nnames: ~\ncount: None\non:\nmaybe: null\nmode: none\n"),
                     TT_OK);
    assert_null(target->name);
    assert_null(target->names);
    assert_int_equal(target->count, 0);
    assert_true(target->on);
    assert_int_equal(target->maybe, -1);
    assert_string_equal(target->mode, "none");
    assert_int_equal(yaml(fixture, "name: 'null'\n"), TT_OK);
    assert_string_equal(target->name, "null");
    assert_error(yaml(fixture, "learning_rate: null\n"), TT_ERR_USAGE,
                 "'learning_rate' takes a value, not 'null'", NULL);
}

static void lists_and_mappings_become_json(void **state)
{
    struct fixture *fixture = *state;
    const struct target *target = &fixture->target;
    assert_int_equal(
        yaml(fixture, "names:\n  - q_proj\n  - 3\n  - 2e-5\n  - 'yes'\n  - yes\n  - null\n  - true\n"),
        TT_OK);
    assert_string_equal(target->names, "[\"q_proj\", 3, 2e-05, \"yes\", \"yes\", null, true]");
    assert_int_equal(yaml(fixture, "names: {a: {b: 1}, '2': [x]}\n"), TT_OK);
    assert_string_equal(target->names, "{\"a\": {\"b\": 1}, \"2\": [\"x\"]}");
    assert_int_equal(yaml(fixture, "names: all-linear\n"), TT_OK);
    assert_string_equal(target->names, "all-linear");
    assert_int_equal(yaml(fixture, "names: q_proj,v_proj\n"), TT_OK);
    assert_string_equal(target->names, "[\"q_proj\", \"v_proj\"]");
    assert_int_equal(yaml(fixture, "names: ' q_proj , v_proj,3 '\n"), TT_OK);
    assert_string_equal(target->names, "[\"q_proj\", \"v_proj\", 3]");
    assert_int_equal(yaml(fixture, "names: 'q_proj v_proj'\n"), TT_OK);
    assert_string_equal(target->names, "q_proj v_proj");
    assert_int_equal(yaml(fixture, "names: '[qv]_proj'\n"), TT_OK);
    assert_string_equal(target->names, "[qv]_proj");
    assert_int_equal(yaml(fixture, "names: '.*\\.(q|v)_proj{1,2}'\n"), TT_OK);
    assert_string_equal(target->names, ".*\\.(q|v)_proj{1,2}");
    assert_int_equal(yaml(fixture, "mode: [some]\n"), TT_OK);
    assert_string_equal(target->mode, "some");
    assert_error(yaml(fixture, "mode: [some, all]\n"), TT_ERR_USAGE, "'mode' takes one value, not a list",
                 NULL);
    assert_error(yaml(fixture, "count: {a: 1}\n"), TT_ERR_USAGE, "'count' takes one value, not a mapping",
                 NULL);
}

static void flags_win_over_files(void **state)
{
    struct fixture *fixture = *state;
    const struct target *target = &fixture->target;
    char path[256];
    test_temporary(path, sizeof path, "tt_settings_XXXXXX");
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    tt_file_close(descriptor);
    const char *text = "learning_rate: 1e-4\ncount: 3\nname: file\n";
    assert_int_equal(tt_file_write_atomic(path, text, strlen(text)), TT_OK);
    assert_int_equal(FLAGS("--learning-rate", "5e-4", "--config", path, "--old_name=", "--max_steps", "-1"),
                     TT_OK);
    assert_true(target->part.rate == 5e-4);
    assert_int_equal(target->count, 3);
    assert_string_equal(target->name, "");
    assert_int_equal(target->part.steps, -1);
    assert_true(tt_settings_is_set(fixture->settings, "older"));
    assert_false(tt_settings_is_set(fixture->settings, "memory"));
    assert_string_equal(tt_settings_origin(fixture->settings, "learning_rate"), "--learning_rate");
    assert_non_null(strstr(tt_settings_origin(fixture->settings, "count"), " line 2"));
    remove(path);
    assert_error(FLAGS("--config", path), TT_ERR_DATA, "No such file", NULL);
}

static void flags_take_words(void **state)
{
    struct fixture *fixture = *state;
    const struct target *target = &fixture->target;
    assert_int_equal(FLAGS("--names", "q_proj", "k_proj", "3", "--on=false", "--maybe"), TT_OK);
    assert_string_equal(target->names, "[\"q_proj\", \"k_proj\", 3]");
    assert_false(target->on);
    assert_int_equal(target->maybe, 1);
    assert_int_equal(FLAGS("--names", "[\"a\"]", "--on", "--no_maybe"), TT_OK);
    assert_string_equal(target->names, "[\"a\"]");
    assert_true(target->on);
    assert_int_equal(target->maybe, 0);
    assert_int_equal(FLAGS("--no-on", "--names", "one"), TT_OK);
    assert_false(target->on);
    assert_string_equal(target->names, "one");
    assert_int_equal(
        FLAGS("--dataloader_pin_memory", "--no_dataloader_pin_memory", "--dataloader_pin_memory", "False"),
        TT_OK);
}

static void wrong_flags_are_named(void **state)
{
    struct fixture *fixture = *state;
    assert_error(FLAGS("--learning_rat", "1"), TT_ERR_USAGE, "there is no setting 'learning_rat'",
                 "'learning_rate'");
    assert_error(FLAGS("--steps", "1"), TT_ERR_USAGE, "there is no setting 'steps'", "'max_steps'");
    assert_error(FLAGS("--no_count"), TT_ERR_USAGE, "no setting 'no_count'", NULL);
    assert_error(FLAGS("word"), TT_ERR_USAGE, "unexpected argument 'word': a flag is expected", "two dashes");
    assert_error(FLAGS("-x", "1"), TT_ERR_USAGE, "unexpected argument '-x'", NULL);
    assert_error(FLAGS("--count"), TT_ERR_USAGE, "--count needs a value", NULL);
    assert_error(FLAGS("--count", "--on"), TT_ERR_USAGE, "--count needs a value", NULL);
    assert_error(FLAGS("--count", "1", "2"), TT_ERR_USAGE, "'2' is one too many", NULL);
    assert_error(FLAGS("--name", "\xff\xfe"), TT_ERR_USAGE, "not UTF-8", NULL);
    assert_error(FLAGS("--names", "a", "\xc3\x28"), TT_ERR_USAGE, "not UTF-8", NULL);
}

static void wrong_values_are_named(void **state)
{
    struct fixture *fixture = *state;
    assert_error(yaml(fixture, "on: true\nlearning_rate: fast\n"), TT_ERR_USAGE,
                 "t.yaml line 2: 'learning_rate' takes a number, not 'fast'", NULL);
    static const char *const bad_numbers[] = {"nan", "inf", "1e999", "0x10", "1 2", "1,5", "--1", "1_", "-1"};
    for (size_t i = 0; i < sizeof bad_numbers / sizeof *bad_numbers; i++) {
        tt_status status = tt_settings_set(fixture->settings, "learning_rate", bad_numbers[i], "x");
        if (status == TT_OK) fail_msg("%s was taken", bad_numbers[i]);
    }
    assert_error(yaml(fixture, "count: 1.5\n"), TT_ERR_USAGE, "takes a whole number, not '1.5'", NULL);
    assert_error(yaml(fixture, "count: 99999999999999999999\n"), TT_ERR_USAGE, "takes a whole number", NULL);
    assert_error(yaml(fixture, "count: 1001\n"), TT_ERR_USAGE, "a number from -1 to 1000", NULL);
    assert_error(yaml(fixture, "on: maybe\n"), TT_ERR_USAGE, "takes true or false", NULL);
    assert_error(yaml(fixture, "colour: pink\n"), TT_ERR_USAGE, "one of: red green blue", NULL);
    assert_error(yaml(fixture, "gaussian: pissa\n"), TT_ERR_USAGE, "one of: true gaussian", NULL);
    assert_error(yaml(fixture, "memory: lots\n"), TT_ERR_USAGE, "a size such as 24GiB", NULL);
    assert_error(yaml(fixture, "old_name: a\nname: b\n"), TT_ERR_USAGE,
                 "'name' sets 'name' again, after line 1", NULL);
    assert_int_equal(fixture->target.count, -1);
}

static void neutral_values_are_accepted(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(yaml(fixture, "noise: 0.0\nkwargs: {}\noff: no\n"), TT_OK);
    assert_int_equal(yaml(fixture, "noise: null\nkwargs:\n"), TT_OK);
    assert_error(yaml(fixture, "noise: 5\n"), TT_ERR_UNSUPPORTED, "'noise' supports only: null 0; not '5'",
                 "no noise");
    assert_error(yaml(fixture, "kwargs: {a: 1}\n"), TT_ERR_UNSUPPORTED, "'kwargs' supports only",
                 "no kwargs");
    assert_error(FLAGS("--off"), TT_ERR_UNSUPPORTED, "--off: 'off' supports only: false", "because");
}

static int unneeded_said;

static void count_lines(void *context, enum tt_log_level level, const char *line)
{
    (void)context, (void)level;
    unneeded_said += strstr(line, "dataloader_pin_memory is accepted without effect: it is so") != NULL;
}

static void unneeded_is_said_once(void **state)
{
    struct fixture *fixture = *state;
    unneeded_said = 0;
    tt_log_set_sink(count_lines, NULL);
    assert_int_equal(yaml(fixture, "dataloader_pin_memory: [any, {thing: 1}]\n"), TT_OK);
    assert_int_equal(FLAGS("--dataloader-pin-memory", "true"), TT_OK);
    assert_int_equal(tt_settings_check(fixture->settings), TT_OK);
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(unneeded_said, 1);
}

static void assert_same(const struct target *a, const struct target *b)
{
    assert_string_equal(a->name != NULL ? a->name : "(null)", b->name != NULL ? b->name : "(null)");
    assert_string_equal(a->names != NULL ? a->names : "(null)", b->names != NULL ? b->names : "(null)");
    assert_string_equal(a->mode, b->mode);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->on, b->on);
    assert_int_equal(a->gaussian, b->gaussian);
    assert_int_equal(a->maybe, b->maybe);
    assert_int_equal(a->colour, b->colour);
    assert_true(a->memory == b->memory);
    assert_true(a->part.rate == b->part.rate);
    assert_int_equal(a->part.steps, b->part.steps);
}

/* What the resolved file says is what its reader understands, whatever the texts hold. */
static void resolved_file_reads_back(void **state)
{
    (void)state;
    static const char *const texts[] = {"plain/path.txt",
                                        "",
                                        "null",
                                        "no",
                                        "1e-5",
                                        "a: b # c",
                                        "- x",
                                        "'q' \"d\" \\",
                                        "line\nbreak\ttab",
                                        "\x01\x7f",
                                        "gr\xc3\xbc\xc3\x9f",
                                        "\xc2\x85\xe2\x80\xa8\xef\xbb\xbf",
                                        "\xf0\x9f\x98\x80",
                                        " lead",
                                        "~",
                                        "=",
                                        "[a",
                                        "{b"};
    static const char *const names[] = {"[\"a\", 1, 2.5, null]",
                                        "{\"k\": {\"n\": [true]}}",
                                        "[qv]_proj",
                                        "x",
                                        "{}",
                                        "[]",
                                        "[\"\\ud83d\\ude00\", \"\\u0001\"]",
                                        "5"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct fixture a = {0}, b = {0};
        struct tt_str first = {0};
        assert_int_equal(tt_settings_create(sections, 2, &a.target, sizeof a.target, &a.settings), TT_OK);
        assert_int_equal(tt_settings_create(sections, 2, &b.target, sizeof b.target, &b.settings), TT_OK);
        char assign[64];
        snprintf(assign, sizeof assign, "--learning_rate=%.17g", 1.0 / (double)(3 + i));
        const char *words[] = {"--no_on", "--maybe", "--colour",   "red",      "--memory", "3MiB", "--print",
                               "--noise", "0",       "--gaussian", "gaussian", assign,     NULL};
        assert_int_equal(flags(&a, words), TT_OK);
        char name[200];
        snprintf(name, sizeof name, "--name=%s", texts[i]);
        assert_int_equal(flags(&a, (const char *const[]){name, NULL}), TT_OK);
        assert_int_equal(tt_settings_set(a.settings, "names", names[i % (sizeof names / sizeof *names)],
                                         "two\nlines \xff"),
                         TT_OK);
        assert_int_equal(tt_settings_write_yaml(a.settings, &first), TT_OK);
        assert_null(strstr(tt_str_text(&first), "print"));
        tt_status status = tt_settings_parse_yaml(b.settings, first.data, first.bytes, "resolved.yaml");
        if (status != TT_OK) fail_msg("%s\n%s", tt_error_last()->message, first.data);
        assert_same(&a.target, &b.target);
        tt_settings_destroy(a.settings);
        tt_settings_destroy(b.settings);
        tt_str_deinit(&first);
    }
}

static void help_and_docs_name_every_row(void **state)
{
    (void)state;
    struct tt_str help = {0}, docs = {0};
    assert_int_equal(tt_settings_help(sections, 2, 60, &help), TT_OK);
    assert_int_equal(tt_settings_docs(sections, 2, &docs), TT_OK);
    for (size_t s = 0; s < 2; s++)
        for (const struct tt_setting *row = sections[s].rows; row->name != NULL; row++) {
            if (strstr(help.data, row->name) == NULL) fail_msg("%s is not in the help", row->name);
            if (strstr(docs.data, row->name) == NULL) fail_msg("%s is not in the docs", row->name);
        }
    for (const char *line = help.data; *line != 0; line++) {
        size_t bytes = strcspn(line, "\n");
        if (bytes > 60 && strstr(line, "(docs/") != NULL) {
            line += bytes;
            continue;
        }
        if (bytes > 60) fail_msg("too long: %.*s", (int)bytes, line);
        line += bytes;
    }
    tt_str_deinit(&help);
    tt_str_deinit(&docs);
}

/* A table whose defaults do not fit its types is our bug and is found when the store is made. */
static void bad_tables_are_found(void **state)
{
    (void)state;
    static const struct tt_setting bad_default[] = {
        {.name = "x", .type = TT_SETTING_INT, .default_text = "y"}, {.name = NULL}};
    static const struct tt_setting twice[] = {
        {.name = "x", .type = TT_SETTING_STRING}, {.name = "x", .type = TT_SETTING_STRING}, {.name = NULL}};
    static const struct tt_setting outside[] = {{.name = "x", .type = TT_SETTING_STRING, .offset = 4096},
                                                {.name = NULL}};
    const struct tt_setting *tables[] = {bad_default, twice, outside};
    for (size_t i = 0; i < 3; i++) {
        struct target target;
        struct tt_settings *settings = NULL;
        struct tt_setting_section section = {"X", tables[i], 0};
        assert_int_equal(tt_settings_create(&section, 1, &target, sizeof target, &settings), TT_ERR_INTERNAL);
        assert_null(settings);
    }
}

/* Whichever allocation fails, nothing leaks and the status says memory. */
static tt_status parse_and_write(void *context)
{
    static const char document[] = "names: [a, b]\nname: x\nlearning_rate: 3e-4\n";
    struct target target;
    struct tt_settings *settings = NULL;
    struct tt_str text = {0};
    (void)context;
    tt_status status = tt_settings_create(sections, 2, &target, sizeof target, &settings);
    if (status == TT_OK) status = tt_settings_parse_yaml(settings, document, strlen(document), "t.yaml");
    if (status == TT_OK) status = tt_settings_write_yaml(settings, &text);
    tt_settings_destroy(settings);
    tt_str_deinit(&text);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    test_allocations_fail(parse_and_write, NULL);
}

/* Numbers beyond the choices, as a damaged file may have them, have no word. */
static void words_of_choices(void **state)
{
    (void)state;
    static const struct tt_setting row = {
        .name = "way", .type = TT_SETTING_CHOICE, .choices = "all single none"};
    static const char *const words[] = {"all", "single", "none", "", ""};
    for (int value = 0; value < 5; value++) {
        char word[16];
        assert_string_equal(tt_setting_word(&row, value, word, sizeof word), words[value]);
    }
}

/* A word, a list, words of a flag; the canonical text is in the order of the row. */
static void sets_of_words(void **state)
{
    struct fixture *fixture = *state;
    struct target *target = &fixture->target;
    struct tt_str text = {0};
    assert_int_equal(target->colours, 2);
    assert_int_equal(FLAGS("--colours", "red"), TT_OK);
    assert_int_equal(target->colours, 1);
    assert_int_equal(FLAGS("--colours", "blue", "red"), TT_OK);
    assert_int_equal(target->colours, 5);
    assert_int_equal(FLAGS("--colours", "green,blue"), TT_OK);
    assert_int_equal(target->colours, 6);
    assert_int_equal(yaml(fixture, "colours: [blue, red, blue]\n"), TT_OK);
    assert_int_equal(target->colours, 5);
    assert_int_equal(tt_settings_write_yaml(fixture->settings, &text), TT_OK);
    assert_non_null(strstr(tt_str_text(&text), "\ncolours: [\"red\", \"blue\"]  #"));
    assert_int_equal(yaml(fixture, "colours: []\n"), TT_OK);
    assert_int_equal(target->colours, 0);
    assert_error(yaml(fixture, "colours: [red, pink]\n"), TT_ERR_USAGE,
                 "'colours' takes one or more of: red green blue", NULL);
    assert_error(yaml(fixture, "colours: {red: 1}\n"), TT_ERR_USAGE, "'colours' takes one or more of", NULL);
    assert_int_equal(target->colours, 0);
    tt_str_deinit(&text);
}

static void secrets_are_hidden(void **state)
{
    struct fixture *fixture = *state;
    char parts[] = "--key=abc", flag[] = "--key", value[] = "def";
    char plain[] = "seen", name[] = "--name";
    assert_int_equal(tt_settings_parse_flags(fixture->settings, 3, (char *const[]){parts, name, plain}, NULL),
                     TT_OK);
    assert_string_equal(fixture->target.key, "abc");
    assert_string_equal(parts, "--key=xxx");
    assert_string_equal(plain, "seen");
    assert_int_equal(tt_settings_parse_flags(fixture->settings, 2, (char *const[]){flag, value}, NULL),
                     TT_OK);
    assert_string_equal(fixture->target.key, "def");
    assert_string_equal(value, "xxx");
    assert_string_equal(flag, "--key");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_written),
        TEST(yaml_is_typed_by_row),
        TEST(null_follows_the_row),
        TEST(lists_and_mappings_become_json),
        TEST(flags_win_over_files),
        TEST(flags_take_words),
        TEST(wrong_flags_are_named),
        TEST(wrong_values_are_named),
        TEST(neutral_values_are_accepted),
        TEST(unneeded_is_said_once),
        TEST(resolved_file_reads_back),
        TEST(help_and_docs_name_every_row),
        TEST(bad_tables_are_found),
        TEST(every_allocation_may_fail),
        TEST(words_of_choices),
        TEST(sets_of_words),
        TEST(secrets_are_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
