/* infer/generation_engine.h with LongRoPE: each sequence rotates by the length that it has reached itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "infer/generation_engine.h"
#include "job/inputs.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
enum { CROSSING = 24, BORDER = 20, CASES_MAX = 8, PROMPT_MAX = 32 };

/* With TT_TEST_DEVICE=cuda the answers are a GPU's. */
static struct tt_device_spec device = {.choice = TT_DEVICE_CPU, .threads = 2};

static int choose_device(void **state)
{
    const char *kind = getenv("TT_TEST_DEVICE");
    (void)state;
    if (kind != NULL && strcmp(kind, "cuda") == 0) device.choice = TT_DEVICE_CUDA;
    return 0;
}

static void open_longrope(struct tt_inputs *longrope)
{
    static const struct tt_quantization_config plain;
    static const struct tt_model_spec model = {.model_name_or_path = GOLDEN "phi3/model"};
    const struct tt_inputs_config config = {
        .use = TT_INPUTS_GENERATE, .model = &model, .quantization = &plain, .device = &device};
    test_must(tt_inputs_open(&config, longrope));
    longrope->model_facts.ropes[0].original_max_position = BORDER;
    longrope->model_facts.ropes[0].attention_factor = sqrt(1 + log(4096.0 / BORDER) / log(BORDER));
}

/* A prompt of golden/variants with transformers' answer. */
struct crossing {
    int32_t prompt[PROMPT_MAX], wanted[CROSSING];
    size_t prompt_count;
};

static struct tt_generation_request ask(const int32_t *prompt, size_t count, int64_t new_tokens)
{
    return (struct tt_generation_request){
        .prompt = prompt, .prompt_count = count, .max_new_tokens = new_tokens, .ignore_end = true};
}

static void run_all(struct tt_generation_engine *engine)
{
    for (bool busy = true; busy;) test_must(tt_generation_step(engine, &busy));
}

static size_t read_ids(const struct tt_json_value *list, int32_t *ids, size_t most)
{
    assert_true(tt_json_count(list) <= most);
    for (size_t i = 0; i < tt_json_count(list); i++) ids[i] = (int32_t)tt_json_integer(tt_json_at(list, i));
    return tt_json_count(list);
}

static size_t read_crossings(struct crossing *cases)
{
    struct tt_json json = {0};
    test_must(tt_json_read(GOLDEN "variants/generate.json", 1 << 20, &json));
    assert_int_equal(tt_json_integer(tt_json_get(json.root, "border")), BORDER);
    const struct tt_json_value *list = tt_json_get(json.root, "cases");
    size_t count = tt_json_count(list);
    assert_true(count >= 4 && count <= CASES_MAX);
    for (size_t i = 0; i < count; i++) {
        struct crossing *one = &cases[i];
        one->prompt_count = read_ids(tt_json_get(tt_json_at(list, i), "prompt"), one->prompt, PROMPT_MAX);
        assert_int_equal(read_ids(tt_json_get(tt_json_at(list, i), "ids"), one->wanted, CROSSING), CROSSING);
    }
    tt_json_deinit(&json);
    return count;
}

/* Answers that pass the border are those of transformers' generate(), which computes the sequence again there; neither
 * the longest allowed request, nor other prompts, nor the sizes of passes change a token. */
static void longrope_by_own_length(void **state)
{
    static const struct tt_generation_limits runs[] = {
        {.slots = 1, .length = 45},  {.slots = 1, .length = 96, .pass_tokens = 1},
        {.slots = 3, .length = 45},  {.slots = 8, .length = 300, .pass_tokens = 7},
        {.slots = 8, .length = 300},
    };
    struct crossing cases[CASES_MAX];
    struct tt_inputs longrope;
    size_t count = read_crossings(cases);
    (void)state;
    open_longrope(&longrope);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        struct tt_generation_engine *engine = NULL;
        int64_t ids[CASES_MAX];
        test_must(tt_generation_open(&device, &longrope, &runs[r], &engine));
        for (size_t i = 0; i < count; i++) {
            struct tt_generation_request request = ask(cases[i].prompt, cases[i].prompt_count, CROSSING);
            test_must(tt_generation_submit(engine, &request, &ids[i]));
        }
        run_all(engine);
        for (size_t i = 0; i < count; i++) {
            struct tt_generation_progress progress;
            test_must(tt_generation_poll(engine, ids[i], &progress));
            assert_int_equal(progress.count, CROSSING);
            if (memcmp(progress.tokens, cases[i].wanted, sizeof cases[i].wanted) != 0)
                fail_msg("run %zu: the answer to prompt %zu is another one", r, i);
        }
        tt_generation_destroy(engine);
    }
    tt_inputs_close(&longrope);
}

/* Keys of a shorter sequence are of no use for one beyond the border, and the other way round. */
static void longrope_reuses_its_own_keys(void **state)
{
    struct crossing cases[CASES_MAX];
    struct tt_inputs longrope;
    struct tt_generation_engine *engine = NULL;
    const struct tt_generation_limits limits = {.slots = 1, .length = 64};
    int32_t prompt[64];
    int64_t id;
    (void)state;
    read_crossings(cases);
    open_longrope(&longrope);
    test_must(tt_generation_open(&device, &longrope, &limits, &engine));
    memcpy(prompt, cases[0].prompt, 4 * sizeof *prompt);
    memcpy(prompt + 4, cases[0].wanted, CROSSING * sizeof *prompt);
    static const struct {
        size_t prompt_count, reused;
    } turns[] = {{12, 0}, {16, 12}, {23, 0}, {26, 23}, {12, 0}};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        struct tt_generation_request request = ask(prompt, turns[i].prompt_count, 1);
        struct tt_generation_progress progress;
        test_must(tt_generation_submit(engine, &request, &id));
        run_all(engine);
        test_must(tt_generation_poll(engine, id, &progress));
        assert_int_equal(progress.prompt_reused, turns[i].reused);
        assert_int_equal(progress.tokens[0], cases[0].wanted[turns[i].prompt_count - 4]);
        tt_generation_release(engine, id);
    }
    tt_generation_destroy(engine);
    tt_inputs_close(&longrope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longrope_by_own_length),
        cmocka_unit_test(longrope_reuses_its_own_keys),
    };
    return cmocka_run_group_tests(tests, choose_device, NULL);
}
