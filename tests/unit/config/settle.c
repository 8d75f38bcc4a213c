/* What one setting says of others: aliases, mappings, the environment, and which source wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"

struct target {
    const char *words, *same, *again;
    int device, strategy;
    bool use_cpu, offload;
    int64_t count;
};

#define FIELD(member) .offset = offsetof(struct target, member)

static const struct tt_setting rows[] = {
    {.name = "use_cpu",
     .type = TT_SETTING_BOOL,
     FIELD(use_cpu),
     .default_text = "false",
     .means = "true=device:cpu"},
    {.name = "device",
     .type = TT_SETTING_CHOICE,
     FIELD(device),
     .default_text = "auto",
     .choices = "auto cpu cuda",
     .environment = "TT_TEST_DEVICE_WORD"},
    {.name = "words",
     .type = TT_SETTING_STRING,
     FIELD(words),
     .means = "full=strategy:FULL part=strategy:PART offload=offload:true wrap= gone=nowhere:1",
     .only_reason = "full, part, offload or wrap"},
    {.name = "same",
     .type = TT_SETTING_STRING,
     FIELD(same),
     .synonyms = "yes=true",
     .means = "true=strategy:FULL *=strategy"},
    {.name = "strategy",
     .type = TT_SETTING_CHOICE,
     FIELD(strategy),
     .default_text = "FULL",
     .choices = "FULL PART NONE",
     .synonyms = "2=PART"},
    {.name = "offload", .type = TT_SETTING_BOOL, FIELD(offload), .default_text = "false"},
    {.name = "mapping",
     .type = TT_SETTING_JSON,
     .offset = TT_SETTING_NO_FIELD,
     .spread = "offload",
     .transient = true},
    {.name = "count", .type = TT_SETTING_INT, FIELD(count), .default_text = "0"},
    {.name = NULL},
};

static const struct tt_setting_section sections[] = {{"All", rows, 0}};

struct given {
    const char *file, *second_file; /* NULL: none */
    const char *flags[4];
};

/* Reads the sources and settles. `target` is lent to the store. */
static tt_status settle(const struct given *given, struct target *target, struct tt_settings **settings)
{
    int count = 0;
    char *flags[4];
    while (count < 4 && given->flags[count] != NULL) flags[count] = (char *)given->flags[count], count++;
    assert_int_equal(tt_settings_create(sections, 1, target, sizeof *target, settings), TT_OK);
    if (given->file != NULL)
        TT_TRY(tt_settings_parse_yaml(*settings, given->file, strlen(given->file), "a.yaml"));
    if (given->second_file != NULL)
        TT_TRY(tt_settings_parse_yaml(*settings, given->second_file, strlen(given->second_file), "b.yaml"));
    TT_TRY(tt_settings_parse_flags(*settings, count, flags, NULL));
    return tt_settings_settle(*settings);
}

static void nearer_sources_win(void **state)
{
    static const struct {
        struct given given;
        int device, strategy;
        bool offload;
        const char *gone; /* the alias that says nothing any more */
    } cases[] = {
        {{.file = "use_cpu: true\n"}, 1, 0, false, NULL},
        {{.flags = {"--use_cpu"}}, 1, 0, false, NULL},
        {{.file = "use_cpu: false\ndevice: cuda\n"}, 2, 0, false, NULL},
        {{.file = "use_cpu: true\ndevice: cpu\n"}, 1, 0, false, NULL},
        {{.file = "use_cpu: true\n", .flags = {"--device=cuda"}}, 2, 0, false, "use_cpu"},
        {{.file = "device: cuda\n", .flags = {"--use_cpu"}}, 1, 0, false, NULL},
        {{.file = "device: cuda\n", .second_file = "use_cpu: true\n"}, 1, 0, false, NULL},
        {{.file = "words: part, offload wrap gone\n"}, 0, 1, true, NULL},
        {{.file = "words: PART\n", .flags = {"--strategy=NONE"}}, 0, 2, false, "words"},
        {{.file = "strategy: NONE\n", .flags = {"--words=part"}}, 0, 1, false, NULL},
        {{.file = "words: full\n", .flags = {"--same=2"}}, 0, 1, false, "words"},
        {{.file = "same: yes\n"}, 0, 0, false, NULL},
        {{.file = "same: none_such\n", .second_file = "same: 2\n"}, 0, 1, false, NULL},
        {{.file = "strategy: 2\nsame: part\n"}, 0, 1, false, NULL},
        {{.file = "mapping: {offload: true}\n", .flags = {"--offload=false"}}, 0, 0, false, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct target target;
        struct tt_settings *settings = NULL;
        if (settle(&cases[i].given, &target, &settings) != TT_OK)
            fail_msg("case %zu: %s", i, tt_error_last()->message);
        if (target.device != cases[i].device || target.strategy != cases[i].strategy ||
            target.offload != cases[i].offload)
            fail_msg("case %zu: device %d, strategy %d, offload %d", i, target.device, target.strategy,
                     target.offload);
        if (cases[i].gone != NULL && tt_settings_is_set(settings, cases[i].gone))
            fail_msg("case %zu: %s is still set", i, cases[i].gone);
        /* What is written says the same, and settles without a contradiction. */
        struct tt_str yaml = {0};
        struct target again;
        struct tt_settings *second = NULL;
        assert_int_equal(tt_settings_write_yaml(settings, &yaml), TT_OK);
        struct given written = {.file = tt_str_text(&yaml)};
        if (settle(&written, &again, &second) != TT_OK) fail_msg("case %zu: %s", i, tt_error_last()->message);
        assert_int_equal(again.device, target.device);
        assert_int_equal(again.strategy, target.strategy);
        assert_int_equal(again.offload, target.offload);
        tt_str_deinit(&yaml);
        tt_settings_destroy(settings);
        tt_settings_destroy(second);
    }
}

static void contradictions_of_one_source_are_errors(void **state)
{
    static const struct {
        struct given given;
        const char *message;
    } cases[] = {
        {{.file = "use_cpu: true\ndevice: cuda\n"}, "use_cpu is on, and device is cuda"},
        {{.flags = {"--device=cuda", "--use_cpu"}}, "use_cpu is on, and device is cuda"},
        {{.file = "words: full\nstrategy: NONE\n"}, "words is full, and strategy is NONE"},
        {{.file = "words: full\nsame: part\n"}, "same is part, and strategy is FULL"},
        {{.file = "words: full part\n"}, "words is full part, and strategy is FULL"},
        {{.file = "words: offload\noffload: false\n"}, "words is offload, and offload is off"},
        {{.file = "mapping: {offload: true}\noffload: false\n"}, "offload is on, and offload is off"},
        {{.flags = {"--offload=false", "--mapping={\"offload\": true}"}},
         "offload is off, and offload is on"},
        {{.file = "words: fully\n"}, "a.yaml line 1: 'words' has an unknown word 'fully'"},
        {{.file = "same: maybe\n"}, "same (a.yaml line 1): 'strategy' takes one of"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct target target;
        struct tt_settings *settings = NULL;
        if (settle(&cases[i].given, &target, &settings) != TT_ERR_USAGE) fail_msg("case %zu passes", i);
        if (strstr(tt_error_last()->message, cases[i].message) == NULL)
            fail_msg("no '%s' in: %s", cases[i].message, tt_error_last()->message);
        tt_settings_destroy(settings);
    }
}

/* The environment is the farthest source, and what it says is a setting like any other. */
static void the_environment_is_the_last_source(void **state)
{
    struct target target;
    struct tt_settings *settings = NULL;
    struct given none = {0}, flag = {.flags = {"--device=cpu"}}, alias = {.file = "use_cpu: true\n"};
    (void)state;
    assert_int_equal(setenv("TT_TEST_DEVICE_WORD", "cuda", 1), 0);
    assert_int_equal(settle(&none, &target, &settings), TT_OK);
    assert_int_equal(target.device, 2);
    assert_string_equal(tt_settings_origin(settings, "device"), "TT_TEST_DEVICE_WORD");
    tt_settings_destroy(settings);
    assert_int_equal(settle(&flag, &target, &settings), TT_OK);
    assert_int_equal(target.device, 1);
    tt_settings_destroy(settings);
    assert_int_equal(settle(&alias, &target, &settings), TT_OK);
    assert_int_equal(target.device, 1);
    tt_settings_destroy(settings);
    assert_int_equal(setenv("TT_TEST_DEVICE_WORD", "abacus", 1), 0);
    assert_int_equal(settle(&none, &target, &settings), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "TT_TEST_DEVICE_WORD: 'device' takes one of"));
    tt_settings_destroy(settings);
    assert_int_equal(setenv("TT_TEST_DEVICE_WORD", "", 1), 0);
    assert_int_equal(settle(&none, &target, &settings), TT_OK);
    assert_false(tt_settings_is_set(settings, "device"));
    tt_settings_destroy(settings);
    assert_int_equal(unsetenv("TT_TEST_DEVICE_WORD"), 0);
}

static void suggestions_wait_for_everybody(void **state)
{
    struct target target;
    struct tt_settings *settings = NULL;
    struct given alias = {.file = "use_cpu: true\n"};
    (void)state;
    assert_int_equal(settle(&alias, &target, &settings), TT_OK);
    assert_int_equal(tt_settings_suggest(settings, "device", "cuda", "launcher"), TT_OK);
    assert_int_equal(target.device, 1);
    assert_int_equal(tt_settings_suggest(settings, "count", "7", "launcher"), TT_OK);
    assert_int_equal(tt_settings_suggest(settings, "no_such_setting", "7", "launcher"), TT_OK);
    assert_int_equal(target.count, 7);
    /* A meaning that no row holds: nearer than the suggestion. */
    assert_int_equal(tt_settings_imply(settings, "use_cpu", "count", "9"), TT_OK);
    assert_int_equal(target.count, 9);
    assert_int_equal(tt_settings_imply(settings, "use_cpu", "count", "8"), TT_ERR_USAGE);
    assert_int_equal(tt_settings_imply(settings, "words", "count", "3"), TT_OK); /* is not set */
    assert_int_equal(target.count, 9);
    tt_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearer_sources_win),
        cmocka_unit_test(contradictions_of_one_source_are_errors),
        cmocka_unit_test(the_environment_is_the_last_source),
        cmocka_unit_test(suggestions_wait_for_everybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
