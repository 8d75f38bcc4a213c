/* Every kind of job refuses the same contradictions, and the job is what is printed as resolved. Walks the tables of
 * settings, so that a row that is added is tested too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/store.h"
#include "job/resolve.h"

union spec {
    struct tt_job_spec job; /* every kind begins with it */
    struct tt_eval_spec evaluate;
    struct tt_generate_spec generate;
    struct tt_plan_spec plan;
    struct tt_bench_spec bench;
};

struct fixture {
    union spec spec;
    struct tt_settings *settings;
};

static const char *const kind_names[] = {[TT_JOB_TRAIN] = "train",
                                         [TT_JOB_EVALUATE] = "eval",
                                         [TT_JOB_GENERATE] = "generate",
                                         [TT_JOB_PLAN] = "plan",
                                         [TT_JOB_BENCH] = "bench"};

/* A store of the kind with what the kind requires. */
static void open_fixture(struct fixture *fixture, enum tt_job_kind kind)
{
    static const char *const required[][2] = {
        {"model_name_or_path", "m"}, {"dataset_name", "d"}, {"config_json", "c"}};
    *fixture = (struct fixture){0};
    assert_int_equal(tt_job_settings_create(kind, &fixture->spec, sizeof fixture->spec, &fixture->settings),
                     TT_OK);
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (tt_settings_has(fixture->settings, required[i][0]))
            assert_int_equal(tt_settings_set(fixture->settings, required[i][0], required[i][1], "required"),
                             TT_OK);
}

static tt_status resolve(struct fixture *fixture, enum tt_job_kind kind)
{
    union spec *spec = &fixture->spec;
    switch (kind) {
    case TT_JOB_TRAIN:
        return tt_train_resolve(fixture->settings, &spec->job);
    case TT_JOB_EVALUATE:
        return tt_evaluate_resolve(fixture->settings, &spec->job);
    case TT_JOB_GENERATE:
        return tt_generate_resolve(fixture->settings, &spec->job, &spec->generate.generate);
    case TT_JOB_PLAN:
        return tt_plan_resolve(fixture->settings, &spec->plan);
    case TT_JOB_BENCH:
        return tt_bench_resolve(fixture->settings, &spec->bench);
    case TT_JOB_KINDS:
        break;
    }
    return TT_ERR_INTERNAL;
}

/* A value of the row that is not `value`. */
static void other_value(const struct tt_setting *row, const char *value, char other[64])
{
    if (row->choices == NULL) {
        snprintf(other, 64, "%s", strcmp(value, "true") == 0 ? "false" : "true");
        return;
    }
    for (const char *at = row->choices; *at != 0; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, " ");
        snprintf(other, 64, "%.*s", (int)bytes, at);
        if (strcmp(other, value) != 0) return;
        at += bytes;
    }
    fail_msg("%s has one value only", row->name);
}

enum source { SOURCE_YAML, SOURCE_FLAGS, SOURCES };

/* One source gives both. */
static tt_status give(struct fixture *fixture, enum tt_job_kind kind, enum source source, const char *name,
                      const char *value, const char *second_name, const char *second_value)
{
    char yaml[400], first[200], second[200];
    char *const flags[] = {first, second};
    open_fixture(fixture, kind);
    snprintf(yaml, sizeof yaml, "%s: %s\n%s: %s\n", name, value, second_name, second_value);
    snprintf(first, sizeof first, "--%s=%s", name, value);
    snprintf(second, sizeof second, "--%s=%s", second_name, second_value);
    tt_status status = source == SOURCE_YAML
                           ? tt_settings_parse_yaml(fixture->settings, yaml, strlen(yaml), "t.yaml")
                           : tt_settings_parse_flags(fixture->settings, 2, flags, NULL);
    return status == TT_OK ? resolve(fixture, kind) : status;
}

/* `name: value` says that `target` is `same`: the same beside it passes, and `other` is refused. */
static void check_pair(enum tt_job_kind kind, const char *name, const char *value, const char *target,
                       const char *same, const char *other)
{
    for (enum source source = 0; source < SOURCES; source++) {
        struct fixture fixture;
        if (give(&fixture, kind, source, name, value, target, same) != TT_OK)
            fail_msg("%s, %s: %s, %s: %s: %s", kind_names[kind], name, value, target, same,
                     tt_error_last()->message);
        tt_settings_destroy(fixture.settings);
        if (give(&fixture, kind, source, name, value, target, other) != TT_ERR_USAGE)
            fail_msg("%s takes %s: %s with %s: %s", kind_names[kind], name, value, target, other);
        if (strstr(tt_error_last()->message, target) == NULL || tt_error_last()->hint[0] == 0)
            fail_msg("the refusal names no %s: %s", target, tt_error_last()->message);
        tt_settings_destroy(fixture.settings);
    }
}

static void check_meaning(enum tt_job_kind kind, const char *alias, const char *word,
                          const struct tt_setting *target, const char *value)
{
    char other[64];
    if (target->choices == NULL && target->type == TT_SETTING_STRING)
        snprintf(other, sizeof other, "h200"); /* the device of a plan */
    else
        other_value(target, value, other);
    check_pair(kind, alias, word, target->name, value, other);
}

static int check_aliases(enum tt_job_kind kind, const struct tt_settings *settings,
                         const struct tt_setting *row)
{
    int count = 0;
    for (const char *at = row->means; at != NULL && *at != 0; at += strspn(at, " ")) {
        char word[64] = "", name[64] = "", value[64] = "";
        size_t bytes = strcspn(at, " ");
        int fields = sscanf(at, "%63[^= ]=%63[^: ]:%63[^ ]", word, name, value);
        at += bytes;
        if (fields < 2 || !tt_settings_has(settings, name)) continue;
        const struct tt_setting *target = tt_settings_find(settings, name)->row;
        if (word[0] == '*') snprintf(word, sizeof word, "%s", target->default_text);
        check_meaning(kind, row->name, word, target, fields == 3 ? value : word);
        count++;
    }
    return count;
}

static void contradictions_of_aliases_are_refused(void **state)
{
    int count[TT_JOB_KINDS] = {0};
    (void)state;
    for (enum tt_job_kind kind = 0; kind < TT_JOB_KINDS; kind++) {
        struct fixture fixture;
        open_fixture(&fixture, kind);
        for (size_t i = 0; i < fixture.settings->count; i++)
            count[kind] += check_aliases(kind, fixture.settings, fixture.settings->entries[i].row);
        tt_settings_destroy(fixture.settings);
    }
    /* use_cpu, the words of fsdp and fsdp_reshard_after_forward, param_dtype; with recomputation two more. */
    assert_true(count[TT_JOB_GENERATE] >= 1);
    assert_true(count[TT_JOB_EVALUATE] >= 12);
    assert_true(count[TT_JOB_TRAIN] >= 14);
    assert_true(count[TT_JOB_PLAN] == count[TT_JOB_TRAIN]);
    assert_true(count[TT_JOB_BENCH] == count[TT_JOB_TRAIN]);
}

/* A mapping whose keys are settings, and a key of it beside it. */
static int check_members(enum tt_job_kind kind, const struct tt_settings *settings,
                         const struct tt_setting *mapping)
{
    int count = 0;
    for (size_t i = 0; i < settings->count; i++) {
        const struct tt_setting *row = settings->entries[i].row;
        char value[64], other[64], member[160];
        if (!tt_starts_with_one_of(row->name, mapping->spread) || row->offset == TT_SETTING_NO_FIELD)
            continue;
        if (row->type != TT_SETTING_BOOL && row->type != TT_SETTING_CHOICE) continue;
        other_value(row, row->default_text, value);
        other_value(row, value, other);
        snprintf(member, sizeof member, "{\"%s\": %s%s%s}", row->name, row->choices != NULL ? "\"" : "",
                 value, row->choices != NULL ? "\"" : "");
        check_pair(kind, mapping->name, member, row->name, value, other);
        count++;
    }
    return count;
}

static void contradictions_of_mappings_are_refused(void **state)
{
    (void)state;
    for (enum tt_job_kind kind = 0; kind < TT_JOB_KINDS; kind++) {
        struct fixture fixture;
        int count = 0;
        open_fixture(&fixture, kind);
        for (size_t i = 0; i < fixture.settings->count; i++)
            if (fixture.settings->entries[i].row->spread != NULL)
                count += check_members(kind, fixture.settings, fixture.settings->entries[i].row);
        if (tt_settings_has(fixture.settings, "fsdp_config")) /* whose keys accelerate.c knows */
            check_pair(kind, "fsdp_config", "{\"offload_params\": true}", "offload_params", "true", "false");
        tt_settings_destroy(fixture.settings);
        assert_true(count >= 4); /* quantization_config: 4 or 8 bits, the type, double quantization */
    }
}

/* Two spellings of one setting in one file, whatever their values. */
static void two_spellings_are_refused(void **state)
{
    (void)state;
    for (enum tt_job_kind kind = 0; kind < TT_JOB_KINDS; kind++) {
        struct fixture fixture;
        int count = 0;
        open_fixture(&fixture, kind);
        for (size_t i = 0; i < fixture.settings->count; i++) {
            const struct tt_setting *row = fixture.settings->entries[i].row;
            const char *value = row->default_text != NULL ? row->default_text : "null";
            for (const char *at = row->aliases; at != NULL && *at != 0; at += strspn(at, " ")) {
                struct fixture other;
                char alias[64];
                snprintf(alias, sizeof alias, "%.*s", (int)strcspn(at, " "), at);
                at += strcspn(at, " ");
                tt_status status = give(&other, kind, SOURCE_YAML, alias, value, row->name, value);
                if (status != TT_ERR_USAGE || strstr(tt_error_last()->message, " again, after") == NULL)
                    fail_msg("%s takes %s beside %s: %s", kind_names[kind], alias, row->name,
                             tt_error_last()->message);
                tt_settings_destroy(other.settings);
                count++;
            }
        }
        tt_settings_destroy(fixture.settings);
        assert_true(count >= 8);
    }
}

/* What no row holds. */
static void all_kinds_check_what_they_share(void **state)
{
    static const struct {
        const char *yaml, *message;
        unsigned kinds;
    } cases[] = {
#define K(kind) (1u << TT_JOB_##kind)
        {"use_cpu: true\ndevice: cuda\n", "use_cpu is on, and device is cuda", ~0u},
        {"load_in_4bit: true\nload_in_8bit: true\n", "are both on", ~0u},
        {"load_in_4bit: true\nbnb_4bit_compute_dtype: float32\n", "the run computes in bfloat16", ~0u},
        {"fsdp: no_such_word\n", "'fsdp' has an unknown word 'no_such_word'", ~K(GENERATE)},
        {"fsdp_config: {shard: 1}\n", "there is no key 'shard'", ~K(GENERATE)},
        {"ranks: 3\nnum_processes: 2\n", "num_processes is 2, and ranks is 3", ~K(GENERATE)},
        {"ranks: 3\nnum_machines: 2\nmain_process_ip: h\nnum_processes: 4\n",
         "num_processes is 4, and ranks is 3", ~K(GENERATE)},
        {"num_machines: 2\n", "main_process_ip is missing", ~(K(GENERATE) | K(PLAN))},
        {"num_machines: 2\nmain_process_ip: h\nmachine_rank: 2\n", "machine_rank 2 is not below",
         ~(K(GENERATE) | K(PLAN))},
        {"use_peft: false\nadapter_name_or_path: a\n", "use_peft is off", K(TRAIN) | K(PLAN)},
        {"learning_rate: 0\n", "learning_rate must be above 0", K(TRAIN) | K(PLAN) | K(BENCH)},
        {"dataset_name: null\n", "setting 'dataset_name' is missing", K(TRAIN)},
        {"dataset_name: null\n", "there is no evaluation data", K(EVALUATE)},
        {"row_tokens_min: 3\n", "row_tokens_min 3 is more than row_tokens_max 0", K(BENCH)},
#undef K
    };
    (void)state;
    for (enum tt_job_kind kind = 0; kind < TT_JOB_KINDS; kind++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct fixture fixture;
            if ((cases[i].kinds >> kind & 1) == 0) continue;
            open_fixture(&fixture, kind);
            tt_status status =
                tt_settings_parse_yaml(fixture.settings, cases[i].yaml, strlen(cases[i].yaml), "t.yaml");
            if (status == TT_OK) status = resolve(&fixture, kind);
            if (status == TT_OK) fail_msg("%s takes: %s", kind_names[kind], cases[i].yaml);
            if (strstr(tt_error_last()->message, cases[i].message) == NULL)
                fail_msg("%s: no '%s' in: %s", kind_names[kind], cases[i].message, tt_error_last()->message);
            tt_settings_destroy(fixture.settings);
        }
}

/* The resolved text gives the same job: every field that a row fills, and nothing is settled anew. */
static void the_resolved_text_is_the_job(void **state)
{
    static const char *const yaml[] = {
        "",
        "use_cpu: true\n",
        "fsdp: shard_grad_op offload\nfsdp_config: {backward_prefetch: backward_post}\n",
        "param_dtype: float32\nfsdp_reshard_after_forward: false\n",
        "num_processes: 2\n",
        "fsdp_activation_checkpointing: true\nactivation_offloading: true\n",
        "eval_strategy: steps\nlogging_steps: 25\n"};
    (void)state;
    for (enum tt_job_kind kind = 0; kind < TT_JOB_KINDS; kind++)
        for (size_t i = 0; i < sizeof yaml / sizeof *yaml; i++) {
            struct fixture first, second;
            struct tt_str text = {0};
            open_fixture(&first, kind);
            if (tt_settings_parse_yaml(first.settings, yaml[i], strlen(yaml[i]), "t.yaml") != TT_OK) {
                tt_settings_destroy(first.settings); /* the kind has no such setting */
                continue;
            }
            if (resolve(&first, kind) != TT_OK) fail_msg("%s: %s", yaml[i], tt_error_last()->message);
            assert_int_equal(tt_settings_write_yaml(first.settings, &text), TT_OK);
            second = (struct fixture){0};
            assert_int_equal(tt_job_settings_create(kind, &second.spec, sizeof second.spec, &second.settings),
                             TT_OK);
            assert_int_equal(tt_settings_parse_yaml(second.settings, text.data, text.bytes, "r.yaml"), TT_OK);
            if (resolve(&second, kind) != TT_OK) fail_msg("%s: %s", yaml[i], tt_error_last()->message);
            for (size_t e = 0; e < first.settings->count; e++) {
                const char *a = first.settings->entries[e].text, *b = second.settings->entries[e].text;
                if (a != b && (a == NULL || b == NULL || strcmp(a, b) != 0))
                    fail_msg("%s, %s: %s is %s and %s", kind_names[kind], yaml[i],
                             first.settings->entries[e].row->name, a != NULL ? a : "null",
                             b != NULL ? b : "null");
            }
            tt_str_deinit(&text);
            tt_settings_destroy(first.settings);
            tt_settings_destroy(second.settings);
        }
}

int main(void)
{
    /* What a launcher sets decides whether num_processes is ours to start. */
    static const char *const launcher[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                           "LOCAL_RANK",           "RANK",     "SLURM_STEP_ID",
                                           "MASTER_ADDR"};
    for (size_t i = 0; i < sizeof launcher / sizeof *launcher; i++) unsetenv(launcher[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contradictions_of_aliases_are_refused),
        cmocka_unit_test(contradictions_of_mappings_are_refused),
        cmocka_unit_test(two_spellings_are_refused),
        cmocka_unit_test(all_kinds_check_what_they_share),
        cmocka_unit_test(the_resolved_text_is_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
