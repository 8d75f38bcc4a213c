/* Identities of runs compared: numbers of earlier versions, names that one side lacks, many changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "run/resume.h"

/* Compares two objects in JSON. */
static void compare(const char *before, const char *now, const char *const *except, struct tt_str *text)
{
    struct tt_json a = {0}, b = {0};
    assert_int_equal(tt_json_parse(before, strlen(before), "before", &a), TT_OK);
    assert_int_equal(tt_json_parse(now, strlen(now), "now", &b), TT_OK);
    assert_int_equal(tt_resume_changes(a.root, b.root, except, text), TT_OK);
    tt_json_deinit(&a);
    tt_json_deinit(&b);
}

static void expect(const char *before, const char *now, const char *const *except, const char *wanted)
{
    struct tt_str text = {0};
    compare(before, now, except, &text);
    assert_string_equal(tt_str_text(&text), wanted);
    tt_str_deinit(&text);
}

/* The numbers that lie in checkpoints mean these words for ever, whatever an enum becomes. */
static const struct {
    const char *name, *words[13];
} numbers[] = {
    {"quantized base", {"none", "nf4", "fp4", "int8", "fp8"}},
    {"fp8_products", {"all", "forward", "none", "single"}},
    {"loss_type (dpo)",
     {"sigmoid", "robust", "hinge", "ipo", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero",
      "apo_down", "discopop", "sigmoid_norm"}},
};

static void spellings_of_one_optimizer(void **state)
{
    (void)state;
    expect("{\"optim\": \"adamw_8bit\"}", "{\"optim\": \"paged_adamw_8bit\"}", NULL, "");
    expect("{\"optim\": \"adamw_torch\"}", "{\"optim\": \"paged_adamw\"}", NULL, "");
    expect("{\"optim\": \"adamw_torch\"}", "{\"optim\": \"adamw_8bit\"}", NULL,
           "optim was \"adamw_torch\" and is \"adamw_8bit\"");
    expect("{\"optim\": \"lion_8bit\"}", "{\"optim\": \"adamw_8bit\"}", NULL,
           "optim was \"lion_8bit\" and is \"adamw_8bit\"");
    expect("{\"optim\": \"unknown\"}", "{\"optim\": \"adamw_torch\"}", NULL,
           "optim was \"unknown\" and is \"adamw_torch\"");
    expect("{\"scheduler\": \"adamw\"}", "{\"scheduler\": \"adamw_torch\"}", NULL,
           "scheduler was \"adamw\" and is \"adamw_torch\"");
}

static void numbers_of_earlier_versions(void **state)
{
    char before[100], now[100], wanted[100];
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int n = 0; numbers[i].words[n] != NULL; n++) {
            const char *name = numbers[i].name, *word = numbers[i].words[n];
            snprintf(now, sizeof now, "{\"%s\": \"%s\"}", name, word);
            snprintf(before, sizeof before, "{\"%s\": %d}", name, n);
            expect(before, now, NULL, "");
            snprintf(before, sizeof before, "{\"%s\": %d.0}", name, n);
            expect(before, now, NULL, "");
            snprintf(now, sizeof now, "{\"%s\": \"other\"}", name);
            snprintf(wanted, sizeof wanted, "%s was \"%s\" and is \"other\"", name, word);
            expect(before, now, NULL, wanted);
        }
    expect("{\"lora_r\": 1}", "{\"lora_r\": 2}", NULL, "lora_r was 1 and is 2");
    expect("{\"fp8_products\": \"all\"}", "{\"fp8_products\": \"all\"}", NULL, "");
}

/* Other numbers are no choice, and differ from every word. */
static void numbers_beyond(void **state)
{
    char before[100], now[100];
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *beyond[] = {"-1", "0.5", "5", "16", "4294967297", "1e300"};
        beyond[2] = i == 0 ? "5" : i == 1 ? "4" : "12";
        for (size_t v = 0; v < sizeof beyond / sizeof *beyond; v++) {
            struct tt_str text = {0};
            snprintf(before, sizeof before, "{\"%s\": %s}", numbers[i].name, beyond[v]);
            snprintf(now, sizeof now, "{\"%s\": \"%s\"}", numbers[i].name, numbers[i].words[0]);
            compare(before, now, NULL, &text);
            if (text.bytes == 0) fail_msg("%s: the number %s has a word", numbers[i].name, beyond[v]);
            tt_str_deinit(&text);
        }
    }
}

/* A name that one side lacks has the value of what is not written, or is not compared. */
static void names_of_one_side(void **state)
{
    (void)state;
    expect("{\"new\": 1}", "{\"other\": 2}", NULL, "");
    expect("{\"fp8_products\": 2}", "{}", NULL, "");
    expect("{\"fp8_products\": \"none\"}", "{}", NULL, "");
    expect("{\"fp8_products\": 0}", "{}", NULL, "fp8_products was \"all\" and is \"none\"");
    expect("{}", "{\"fp8_products\": \"single\"}", NULL, "fp8_products was \"none\" and is \"single\"");
    expect("{}", "{\"momentum\": 0.5}", NULL, "momentum was 0.0 and is 0.5");
    static const char *const except[] = {"a", NULL};
    expect("{\"a\": 1, \"b\": null}", "{\"a\": 2, \"b\": \"x\"}", except, "b was null and is \"x\"");
}

static void many_changes(void **state)
{
    (void)state;
    expect("{\"a\": 1, \"b\": 1, \"c\": 1, \"d\": 1, \"e\": 1, \"f\": 1, \"g\": 1}",
           "{\"a\": 2, \"b\": 2, \"c\": 2, \"d\": 2, \"e\": 2, \"f\": 2, \"g\": 2}", NULL,
           "a was 1 and is 2; b was 1 and is 2; c was 1 and is 2; d was 1 and is 2; e was 1 and is 2; f was "
           "1 and is 2; "
           "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_earlier_versions),
        cmocka_unit_test(spellings_of_one_optimizer),
        cmocka_unit_test(numbers_beyond),
        cmocka_unit_test(names_of_one_side),
        cmocka_unit_test(many_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
