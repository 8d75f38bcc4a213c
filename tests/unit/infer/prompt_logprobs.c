/* Log p of prompts (infer/generation_engine.h): what an answer's tokens had when they were generated; the same in parts
 * of any length, with slots that have computed beginnings before, and beside other requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "infer/generation_engine.h"
#include "job/inputs.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
enum { LENGTH = 96, PROMPT = 40, NEW = 16, TOP = 4, VOCAB = 263 };

static struct tt_inputs inputs;
static struct tt_device_spec device = {.choice = TT_DEVICE_CPU, .threads = 2};

static int open_inputs(void **state)
{
    static const struct tt_quantization_config plain;
    static const struct tt_model_spec model = {.model_name_or_path = GOLDEN "llama3/model",
                                               .adapter_name_or_path = GOLDEN "llama3/adapter_random"};
    const struct tt_inputs_config config = {
        .use = TT_INPUTS_GENERATE, .model = &model, .quantization = &plain, .device = &device};
    const char *kind = getenv("TT_TEST_DEVICE");
    (void)state;
    if (kind != NULL && strcmp(kind, "cuda") == 0) device.choice = TT_DEVICE_CUDA;
    test_must(tt_inputs_open(&config, &inputs));
    return 0;
}

static int close_inputs(void **state)
{
    (void)state;
    tt_inputs_close(&inputs);
    return 0;
}

static struct tt_generation_engine *open_engine(int64_t slots, int64_t pass_tokens, int64_t rows)
{
    struct tt_generation_engine *engine = NULL;
    const struct tt_generation_limits limits = {
        .slots = slots, .length = LENGTH, .pass_tokens = pass_tokens, .rows = rows};
    test_must(tt_generation_open(&device, &inputs, &limits, &engine));
    return engine;
}

static void run_all(struct tt_generation_engine *engine)
{
    int steps = 0;
    for (bool busy = true; busy; steps++) {
        test_must(tt_generation_step(engine, &busy));
        assert_true(steps < 2000);
    }
}

static void make_prompt(int32_t *ids, int64_t count, uint32_t seed)
{
    for (int64_t t = 0; t < count; t++) {
        seed = seed * 1664525u + 1013904223u;
        ids[t] = (int32_t)(3 + (seed >> 8) % (VOCAB - 3));
    }
}

static struct tt_generation_request prompt_request(const int32_t *ids, size_t count, int64_t new_tokens,
                                                   int top)
{
    return (struct tt_generation_request){.prompt = ids,
                                          .prompt_count = count,
                                          .max_new_tokens = new_tokens,
                                          .ignore_end = true,
                                          .wants_prompt_logprobs = true,
                                          .prompt_top_logprobs = top};
}

/* Log p of a prompt's tokens, as an answer of its own. Returns the tokens that were not computed again. */
static size_t ask(struct tt_generation_engine *engine, const struct tt_generation_request *request,
                  struct tt_token_logprobs *out)
{
    int64_t id;
    struct tt_generation_progress progress;
    test_must(tt_generation_submit(engine, request, &id));
    run_all(engine);
    test_must(tt_generation_poll(engine, id, &progress));
    assert_int_equal(progress.state, TT_GENERATION_LENGTH);
    assert_int_equal(progress.count, request->max_new_tokens);
    assert_int_equal(progress.prompt_logprob_count, request->prompt_count - 1);
    memcpy(out, progress.prompt_logprobs, progress.prompt_logprob_count * sizeof *out);
    tt_generation_release(engine, id);
    return progress.prompt_reused;
}

static void assert_same(const struct tt_token_logprobs *got, const struct tt_token_logprobs *wanted,
                        size_t count, int top)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(fabsf(got[i].logprob - wanted[i].logprob) < 2e-3f);
        assert_true(abs(got[i].rank - wanted[i].rank) <= 2);
        assert_int_equal(got[i].count, top);
        for (int k = 0; k < top; k++) assert_true(fabsf(got[i].logprobs[k] - wanted[i].logprobs[k]) < 2e-3f);
    }
}

/* The answer's own log p is the oracle: read again as a prompt, its tokens have the same. */
static void an_answer_read_again(void **state)
{
    (void)state;
    int32_t ids[PROMPT + NEW];
    struct tt_token_logprobs said[NEW], read[PROMPT + NEW];
    struct tt_generation_engine *engine = open_engine(2, 0, 0);
    struct tt_generation_progress progress;
    int64_t id;
    make_prompt(ids, PROMPT, 5);
    struct tt_generation_request request = prompt_request(ids, PROMPT, NEW, 0);
    request.wants_prompt_logprobs = false;
    request.wants_logprobs = true;
    request.top_logprobs = TOP;
    request.sampling = (struct tt_sampling_options){.sample = true, .temperature = 2};
    test_must(tt_generation_submit(engine, &request, &id));
    run_all(engine);
    test_must(tt_generation_poll(engine, id, &progress));
    assert_int_equal(progress.logprob_count, NEW);
    memcpy(ids + PROMPT, progress.tokens, sizeof(int32_t) * NEW);
    memcpy(said, progress.logprobs, sizeof said);
    tt_generation_release(engine, id);
    for (int new_tokens = 0; new_tokens < 2; new_tokens++) {
        const struct tt_generation_request again = prompt_request(ids, PROMPT + NEW, new_tokens, TOP);
        ask(engine, &again, read);
        for (int i = 0; i < NEW; i++) {
            const struct tt_token_logprobs *one = &read[PROMPT - 1 + i];
            assert_true(fabsf(one->logprob - said[i].logprob) < 2e-3f);
            int better = 0;
            for (int k = 0; k < TOP; k++) {
                assert_true(fabsf(one->logprobs[k] - said[i].logprobs[k]) < 2e-3f);
                better += one->logprobs[k] > one->logprob;
            }
            assert_true(better == TOP ? one->rank > TOP : one->rank == better + 1);
        }
    }
    tt_generation_destroy(engine);
}

/* Parts of prompts, rows of passes and slots are limits, which no number depends on. */
static void parts_of_any_length(void **state)
{
    (void)state;
    static const int64_t limits[][3] = {{1, 1, 0},   {1, 0, 0},  {2, 7, 3},
                                        {3, 0, 100}, {5, 20, 6}, {4, 64, 64}};
    enum { ASKED = 9 };
    int32_t ids[ASKED][PROMPT];
    struct tt_token_logprobs wanted[ASKED][PROMPT], got[PROMPT];
    for (int i = 0; i < ASKED; i++) {
        struct tt_generation_engine *engine = open_engine(1, 0, 0);
        make_prompt(ids[i], PROMPT, (uint32_t)i);
        if (i % 3 == 1) memcpy(ids[i], ids[0], sizeof(int32_t) * 33);
        const struct tt_generation_request request = prompt_request(ids[i], PROMPT - (size_t)i, 0, TOP);
        assert_int_equal(ask(engine, &request, wanted[i]), 0);
        tt_generation_destroy(engine);
    }
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        struct tt_generation_engine *engine = open_engine(limits[l][0], limits[l][1], limits[l][2]);
        int64_t asked[ASKED];
        for (int i = 0; i < ASKED; i++) {
            const struct tt_generation_request request =
                prompt_request(ids[i], PROMPT - (size_t)i, i % 4, TOP);
            test_must(tt_generation_submit(engine, &request, &asked[i]));
        }
        run_all(engine);
        for (int i = 0; i < ASKED; i++) {
            struct tt_generation_progress progress;
            test_must(tt_generation_poll(engine, asked[i], &progress));
            assert_int_equal(progress.count, i % 4);
            assert_int_equal(progress.prompt_logprob_count, PROMPT - i - 1);
            memcpy(got, progress.prompt_logprobs, progress.prompt_logprob_count * sizeof *got);
            assert_same(got, wanted[i], progress.prompt_logprob_count, TOP);
        }
        tt_generation_destroy(engine);
    }
}

/* A beginning whose log p the slot has is not computed again; one whose log p it lacks is. */
static void common_beginnings(void **state)
{
    (void)state;
    int32_t first[PROMPT], second[PROMPT];
    struct tt_token_logprobs wanted[PROMPT], got[PROMPT];
    make_prompt(first, PROMPT, 1);
    make_prompt(second, PROMPT, 2);
    memcpy(second, first, sizeof(int32_t) * 30);
    struct tt_generation_engine *engine = open_engine(1, 0, 0);
    struct tt_generation_request request = prompt_request(second, PROMPT, 0, TOP);
    ask(engine, &request, wanted);
    tt_generation_destroy(engine);

    engine = open_engine(1, 0, 64);
    struct tt_generation_request before = prompt_request(first, PROMPT, 1, TOP);
    ask(engine, &before, got);
    assert_int_equal(ask(engine, &request, got), 29);
    assert_same(got, wanted, PROMPT - 1, TOP);
    request.prompt_top_logprobs = 2; /* fewer are known, too */
    assert_int_equal(ask(engine, &request, got), PROMPT - 2);
    assert_same(got, wanted, PROMPT - 1, 2);
    request.prompt_top_logprobs = TOP; /* more are not */
    assert_int_equal(ask(engine, &request, got), 0);
    assert_same(got, wanted, PROMPT - 1, TOP);
    /* A request without log p takes the slot and leaves what its own tokens share. */
    before.wants_prompt_logprobs = false;
    int64_t id;
    test_must(tt_generation_submit(engine, &before, &id));
    run_all(engine);
    assert_int_equal(ask(engine, &request, got), 29);
    assert_same(got, wanted, PROMPT - 1, TOP);
    tt_generation_forget(engine);
    assert_int_equal(ask(engine, &request, got), 0);
    tt_generation_destroy(engine);
}

/* Another slot's log p is copied with its cache. */
static void beginnings_of_another_slot(void **state)
{
    (void)state;
    int32_t ids[3][PROMPT];
    struct tt_token_logprobs wanted[PROMPT];
    struct tt_generation_progress progress;
    int64_t asked[3];
    make_prompt(ids[0], PROMPT, 1);
    make_prompt(ids[1], PROMPT, 2);
    make_prompt(ids[2], PROMPT, 3);
    memcpy(ids[1], ids[0], sizeof(int32_t) * 35);
    struct tt_generation_engine *engine = open_engine(1, 0, 0);
    const struct tt_generation_request alone = prompt_request(ids[1], PROMPT, 0, TOP);
    ask(engine, &alone, wanted);
    tt_generation_destroy(engine);

    engine = open_engine(3, 0, 256);
    for (int i = 0; i < 3; i++) { /* the second waits for the beginning that the first computes */
        const struct tt_generation_request request = prompt_request(ids[i], PROMPT, 12, TOP);
        test_must(tt_generation_submit(engine, &request, &asked[i]));
    }
    run_all(engine);
    test_must(tt_generation_poll(engine, asked[1], &progress));
    assert_int_equal(progress.prompt_reused, 34);
    assert_same(progress.prompt_logprobs, wanted, PROMPT - 1, TOP);
    tt_generation_destroy(engine);
}

static void wrong_requests(void **state)
{
    (void)state;
    int32_t ids[PROMPT];
    make_prompt(ids, PROMPT, 1);
    struct tt_generation_engine *engine = open_engine(1, 0, 0);
    struct tt_generation_request request = prompt_request(ids, PROMPT, 0, TT_TOP_LOGPROBS_MAX + 1);
    assert_int_equal(tt_generation_check(engine, &request), TT_ERR_USAGE);
    request = prompt_request(ids, PROMPT, -1, 0);
    assert_int_equal(tt_generation_check(engine, &request), TT_ERR_USAGE);
    tt_generation_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_read_again), cmocka_unit_test(parts_of_any_length),
        cmocka_unit_test(common_beginnings),    cmocka_unit_test(beginnings_of_another_slot),
        cmocka_unit_test(wrong_requests),
    };
    return cmocka_run_group_tests(tests, open_inputs, close_inputs);
}
