/* SGD and the schedule of torchvision's detectors against torch's, step by step (tests/golden/optim/make_sgd.py); the
 * memory that a rule keeps; settings of another rule. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "optim/moments.h"
#include "optim/schedule.h"

enum { PARAMS = 2, GAP = 8 /* elements between the beginnings of parameters */ };

static double number(const struct tt_json_value *object, const char *key)
{
    return tt_json_number(tt_json_get(object, key));
}

static void read_params(const struct tt_json_value *lists, float *slices)
{
    for (size_t p = 0; p < PARAMS; p++)
        for (size_t i = 0; i < tt_json_count(tt_json_at(lists, p)); i++)
            slices[p * GAP + i] = (float)tt_json_number(tt_json_at(tt_json_at(lists, p), i));
}

struct training {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_moments moments;
    struct tt_optim_config config;
    const struct tt_optimizer *optimizer;
    tt_param params[PARAMS];
    float master[PARAMS * GAP], grad[PARAMS * GAP];
};

static void begin(struct training *training)
{
    const struct tt_device_config config = {.kind = "cpu", .threads = 1};
    training->optimizer = tt_optimizer_of(&training->config);
    assert_int_equal(tt_device_open(&config, &training->device), TT_OK);
    assert_int_equal(tt_stream_create(training->device, &training->stream), TT_OK);
    struct tt_moments_run runs[PARAMS];
    for (int p = 0; p < PARAMS; p++) {
        training->params[p] = (tt_param){.rank = 1,
                                         .dims = {GAP},
                                         .lr_scale = 1.0,
                                         .weight_decay = p == 0 ? TT_DECAY_FULL : TT_DECAY_NONE};
        runs[p] =
            (struct tt_moments_run){.param = &training->params[p], .offset = (int64_t)p * GAP, .count = GAP};
    }
    assert_int_equal(tt_moments_init(training->device, training->optimizer, runs, PARAMS, PARAMS * GAP, false,
                                     &training->moments),
                     TT_OK);
}

static void end(struct training *training)
{
    tt_moments_deinit(&training->moments);
    tt_stream_destroy(training->stream);
    tt_device_close(training->device);
}

static void step(struct training *training, const struct tt_json_value *golden, int64_t index,
                 struct tt_schedule_length length)
{
    float wanted[PARAMS * GAP] = {0};
    double lr = training->config.learning_rate * tt_schedule_factor(&training->config, index, length);
    assert_true(fabs(lr - number(golden, "lr")) <= 1e-12 * lr);
    read_params(tt_json_get(golden, "gradients"), training->grad);
    const struct tt_moments_step update = {
        .master = training->master, .grad = training->grad, .lr = lr, .grad_scale = 1.0f, .step = index + 1};
    assert_int_equal(tt_moments_update(training->stream, training->optimizer, &training->config,
                                       &training->moments, &update),
                     TT_OK);
    read_params(tt_json_get(golden, "params"), wanted);
    for (int i = 0; i < PARAMS * GAP; i++)
        if (fabs((double)training->master[i] - (double)wanted[i]) > 2e-6)
            fail_msg("step %lld, element %d: %.9g, wanted %.9g", (long long)index, i,
                     (double)training->master[i], (double)wanted[i]);
}

static void steps_are_torchs(void **state)
{
    (void)state;
    struct tt_json json = {0};
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/optim/sgd.json", 1 << 20, &json), TT_OK);
    char kwargs[160];
    (void)snprintf(kwargs, sizeof kwargs,
                   "{\"milestone_epochs\": [%g, %g], \"gamma\": %g, \"warmup_factor\": %g}",
                   tt_json_number(tt_json_at(tt_json_get(json.root, "milestone_epochs"), 0)),
                   tt_json_number(tt_json_at(tt_json_get(json.root, "milestone_epochs"), 1)),
                   number(json.root, "gamma"), number(json.root, "warmup_factor"));
    const struct tt_json_value *cases = tt_json_get(json.root, "cases"), *row, *golden;
    assert_true(tt_json_count(cases) >= 3);
    for (size_t c = 0; (row = tt_json_at(cases, c)) != NULL; c++) {
        const struct tt_json_value *steps = tt_json_get(row, "steps");
        struct tt_schedule_length length = {(int64_t)tt_json_count(steps),
                                            (int64_t)number(json.root, "epoch_steps")};
        struct training training = {.config = {.optim = "sgd",
                                               .learning_rate = number(row, "lr"),
                                               .momentum = number(row, "momentum"),
                                               .nesterov = tt_json_is_true(tt_json_get(row, "nesterov")),
                                               .weight_decay = number(row, "weight_decay"),
                                               .lr_scheduler_type = "multistep",
                                               .lr_scheduler_kwargs = kwargs,
                                               .warmup_steps = number(json.root, "warmup_steps")}};
        assert_int_equal(tt_optimizer_check(&training.config), TT_OK);
        assert_int_equal(tt_schedule_check(&training.config), TT_OK);
        begin(&training);
        read_params(tt_json_get(row, "start"), training.master);
        for (size_t s = 0; (golden = tt_json_at(steps, s)) != NULL; s++)
            step(&training, golden, (int64_t)s, length);
        end(&training);
    }
    tt_json_deinit(&json);
}

static void rules_keep_what_they_need(void **state)
{
    (void)state;
    static const struct {
        const char *optim;
        double momentum;
        size_t values;
    } cases[] = {{"adamw", 0, 2}, {"sgd", 0.9, 1}, {"sgd", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct training training = {.config = {.optim = cases[i].optim, .momentum = cases[i].momentum}};
        struct tt_memory_use memory;
        begin(&training);
        tt_device_memory(training.device, &memory);
        assert_int_equal(training.optimizer->rule->moment_count, cases[i].values);
        assert_true(memory.peak[TT_PURPOSE_OPTIMIZER] >= cases[i].values * sizeof training.master);
        assert_true((memory.peak[TT_PURPOSE_OPTIMIZER] == 0) == (cases[i].values == 0));
        end(&training);
    }
    assert_string_equal(tt_optimizer_of(NULL)->rule->name, "AdamW");
}

/* Each line of spellings.def is found, and each line of rules.def is reached. */
static void every_spelling_has_its_rule(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const struct tt_rule *rule;
        bool variant;
    } spellings[] = {
#define SPELLING(name, rule, bits, place) {name, &tt_rule_##rule, false},
#define VARIANT(name, rule, bits, place) {name, &tt_rule_##rule, true},
#define REFUSED(name, instead)
#include "optim/spellings.def"
#undef SPELLING
#undef VARIANT
#undef REFUSED
    };
    static const struct tt_rule *const rules[] = {
#define RULE(name) &tt_rule_##name,
#include "optim/rules.def"
#undef RULE
    };
    bool reached[sizeof rules / sizeof *rules] = {0};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        struct tt_optim_config config = {.optim = spellings[i].name, .momentum = 0.9};
        if (spellings[i].variant || !spellings[i].rule->has_momentum) config.momentum = 0;
        const struct tt_optimizer *optimizer = tt_optimizer_of(&config);
        assert_string_equal(optimizer->spelling, spellings[i].name);
        assert_ptr_equal(optimizer->rule, spellings[i].rule);
        assert_int_equal(tt_optimizer_check(&config), TT_OK);
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) reached[r] |= rules[r] == optimizer->rule;
    }
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) assert_true(reached[r]);
}

/* Each name of transformers' OptimizerNames (tests/golden/optim/make_names.py) has a rule, or a text that says what to
 * write instead; and that text names values which have one. */
static void every_name_of_transformers_is_answered(void **state)
{
    (void)state;
    struct tt_json json = {0};
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/optim/names.json", 1 << 20, &json), TT_OK);
    const struct tt_json_value *names = tt_json_get(json.root, "names");
    assert_true(tt_json_count(names) >= 40);
    size_t served = 0;
    for (size_t i = 0; i < tt_json_count(names); i++) {
        const char *name = tt_json_text(tt_json_at(names, i));
        struct tt_optim_config config = {.optim = name};
        bool found = strcmp(tt_optimizer_of(&config)->spelling, name) == 0;
        const char *instead = tt_optimizer_instead(name);
        if (found == (instead != NULL))
            fail_msg("'%s' is %s", name, found ? "served and refused" : "neither");
        served += found;
        if (found) continue;
        const char *write = strstr(instead, "write ");
        assert_non_null(write);
        char word[64];
        (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(write + 6, " ,;"), write + 6);
        config.optim = word;
        assert_string_equal(tt_optimizer_of(&config)->spelling, word);
    }
    assert_int_equal(served, 13);
    assert_null(tt_optimizer_instead("adamw_torch"));
    tt_json_deinit(&json);
}

static void every_schedule_of_transformers_is_answered(void **state)
{
    (void)state;
    static const char served[] = " "
#define SCHEDULE(name, keys, shape, warmup) name " "
#define REFUSED(name, instead)
#include "optim/schedules.def"
#undef SCHEDULE
#undef REFUSED
        ;
    struct tt_json json = {0};
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/optim/names.json", 1 << 20, &json), TT_OK);
    const struct tt_json_value *names = tt_json_get(json.root, "schedules");
    assert_int_equal(tt_json_count(names), 12);
    for (size_t i = 0; i < tt_json_count(names); i++) {
        const char *name = tt_json_text(tt_json_at(names, i));
        char word[64];
        (void)snprintf(word, sizeof word, " %s ", name);
        if ((strstr(served, word) != NULL) == (tt_schedule_instead(name) != NULL))
            fail_msg("'%s' is served and refused, or neither", name);
    }
    tt_json_deinit(&json);
}

/* docs/optimizers.md has every value, and those that are refused below the heading of what to write instead. */
static void the_page_has_every_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool refused;
    } names[] = {
#define SPELLING(name, rule, bits, place) {"`" name "`", false},
#define VARIANT SPELLING
#define REFUSED(name, instead) {"`" name "`", true},
#include "optim/spellings.def"
#undef SPELLING
#undef VARIANT
#undef REFUSED
    };
    struct tt_str page = {0};
    assert_int_equal(tt_file_read(TT_TEST_ROOT "/../docs/optimizers.md", 1 << 20, &page), TT_OK);
    char *refused = strstr(tt_str_text(&page), "## What else recipes name");
    assert_non_null(refused);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *at = strstr(names[i].refused ? refused : tt_str_text(&page), names[i].name);
        if (at == NULL || (at < refused) == names[i].refused)
            fail_msg("%s is not in its table", names[i].name);
    }
    tt_str_deinit(&page);
}

/* Which tensors have 8 bits, and what is kept of them. */
static void small_tensors_and_embeddings_keep_32_bits(void **state)
{
    (void)state;
    const struct tt_optimizer *plain = tt_optimizer_of(&(struct tt_optim_config){.optim = "adamw_torch"}),
                              *coded = tt_optimizer_of(&(struct tt_optim_config){.optim = "adamw_8bit"}),
                              *lion = tt_optimizer_of(&(struct tt_optim_config){.optim = "paged_lion_8bit"});
    tt_param large = {.rank = 2, .dims = {64, 65}}, small = {.rank = 2, .dims = {4095, 1}};
    tt_param table = {.rank = 2, .dims = {64, 65}, .place = TT_PLACE_EMBEDDING};
    tt_param head = {.rank = 2, .dims = {64, 65}, .place = TT_PLACE_HEAD};
    struct tt_state_value value;
    assert_true(tt_optimizer_codes(coded, &large) && tt_optimizer_codes(coded, &head));
    assert_true(tt_optimizer_codes(lion, &large));
    assert_false(tt_optimizer_codes(coded, &small) || tt_optimizer_codes(coded, &table));
    assert_false(tt_optimizer_codes(plain, &large));
    assert_true(tt_optimizer_value(coded, &large, 1, &value));
    assert_string_equal(value.prefix, "optimizer.state2.");
    assert_true(value.dtype == TT_U8 && value.block == 1);
    assert_true(tt_optimizer_value(coded, &large, TT_MOMENTS_MAX + 1, &value));
    assert_string_equal(value.prefix, "optimizer.absmax2.");
    assert_true(value.dtype == TT_F32 && value.block == 256);
    assert_true(tt_optimizer_value(coded, &small, 1, &value));
    assert_string_equal(value.prefix, "optimizer.exp_avg_sq.");
    assert_false(tt_optimizer_value(coded, &small, TT_MOMENTS_MAX, &value));
    assert_false(tt_optimizer_value(lion, &large, 1, &value));
    assert_true(lion->place == TT_MOMENT_PAGED && coded->place == TT_MOMENT_RESIDENT);
}

static void settings_of_another_rule_are_refused(void **state)
{
    (void)state;
    const struct tt_optim_config cases[] = {{.optim = "adamw", .momentum = 0.9},
                                            {.optim = "adamw", .nesterov = true},
                                            {.optim = "sgd", .nesterov = true}};
    static const char *const words[] = {"momentum is a setting of optim sgd",
                                        "nesterov is a setting of optim sgd", "nesterov needs momentum"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tt_optimizer_check(&cases[i]), TT_ERR_USAGE);
        assert_non_null(strstr(tt_error_last()->message, words[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_torchs),
        cmocka_unit_test(rules_keep_what_they_need),
        cmocka_unit_test(every_spelling_has_its_rule),
        cmocka_unit_test(every_name_of_transformers_is_answered),
        cmocka_unit_test(every_schedule_of_transformers_is_answered),
        cmocka_unit_test(the_page_has_every_name),
        cmocka_unit_test(small_tensors_and_embeddings_keep_32_bits),
        cmocka_unit_test(settings_of_another_rule_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
