/* Generation of models whose layers carry a state (nn/kv_states.h): answers of 64 tokens, computed beside others of
 * other lengths, are those of each request alone. A state cannot go back: a prompt goes on from a slot where it begins
 * with all of the slot's tokens, or with a beginning whose state is saved; its answer is that of the whole prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "infer/generation_engine.h"
#include "job/inputs.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/dense/"
enum { REQUESTS = 4, PROMPT_MAX = 100, NEW = 64, VOCAB = 96, LENGTH = 128, FIRST = 20, MORE = 5, BLOCK = 16 };

struct model {
    struct tt_inputs inputs;
    struct tt_device_spec device;
};

struct asked {
    int32_t prompt[PROMPT_MAX], answer[NEW];
    size_t count, reused;
    int64_t wanted; /* tokens of the answer */
    bool adapter_off;
};

/* `adapter`: NULL, or its folder. */
static void open_model(const char *folder, const char *adapter, struct model *model)
{
    static const struct tt_quantization_config plain;
    struct tt_model_spec spec = {.model_name_or_path = folder, .adapter_name_or_path = adapter};
    memset(model, 0, sizeof *model);
    model->device = (struct tt_device_spec){.choice = TT_DEVICE_CPU, .threads = 1};
    const struct tt_inputs_config config = {
        .use = TT_INPUTS_GENERATE, .model = &spec, .quantization = &plain, .device = &model->device};
    test_must(tt_inputs_open(&config, &model->inputs));
}

static struct tt_generation_engine *open_engine(struct model *model, int64_t slots)
{
    struct tt_generation_engine *engine = NULL;
    const struct tt_generation_limits limits = {.slots = slots, .length = LENGTH};
    test_must(tt_generation_open(&model->device, &model->inputs, &limits, &engine));
    return engine;
}

static int64_t submit(struct tt_generation_engine *engine, const struct asked *asked)
{
    int64_t id;
    const struct tt_generation_request request = {.prompt = asked->prompt,
                                                  .prompt_count = asked->count,
                                                  .max_new_tokens = asked->wanted,
                                                  .adapter_off = asked->adapter_off,
                                                  .ignore_end = true};
    test_must(tt_generation_submit(engine, &request, &id));
    return id;
}

static void run_all(struct tt_generation_engine *engine)
{
    int steps = 0;
    for (bool busy = true; busy; steps++) {
        test_must(tt_generation_step(engine, &busy));
        assert_true(steps < 2000);
    }
}

static void take(struct tt_generation_engine *engine, int64_t id, struct asked *asked)
{
    struct tt_generation_progress progress;
    test_must(tt_generation_poll(engine, id, &progress));
    assert_int_equal(progress.count, asked->wanted);
    memcpy(asked->answer, progress.tokens, progress.count * sizeof *asked->answer);
    asked->reused = progress.prompt_reused;
    tt_generation_release(engine, id);
}

static void answer(struct tt_generation_engine *engine, struct asked *asked)
{
    int64_t id = submit(engine, asked);
    run_all(engine);
    take(engine, id, asked);
}

/* The answer of an engine that has computed nothing before. */
static struct asked answer_alone(struct model *model, const struct asked *asked)
{
    struct asked alone = *asked;
    struct tt_generation_engine *engine = open_engine(model, 1);
    answer(engine, &alone);
    assert_int_equal(alone.reused, 0);
    tt_generation_destroy(engine);
    return alone;
}

static void check_alike(struct model *model, const struct asked *asked, const char *what)
{
    struct asked alone = answer_alone(model, asked);
    for (int64_t i = 0; i < asked->wanted; i++)
        if (alone.answer[i] != asked->answer[i]) fail_msg("%s: token %d is another one", what, (int)i);
}

static struct asked make_request(int seed, size_t count, int64_t wanted)
{
    struct asked asked = {.count = count, .wanted = wanted};
    for (size_t i = 0; i < count; i++)
        asked.prompt[i] = (int32_t)(3 + (seed * 37 + (int)(i * i) * 11 + (int)i * 5) % (VOCAB - 3));
    return asked;
}

static void check_beside(struct model *model)
{
    static const size_t counts[REQUESTS] = {1, 50, 7, 33};
    struct asked asked[REQUESTS];
    int64_t ids[REQUESTS];
    struct tt_generation_engine *engine = open_engine(model, REQUESTS - 1);
    for (int i = 0; i < REQUESTS; i++) {
        asked[i] = make_request(i, counts[i], NEW);
        ids[i] = submit(engine, &asked[i]);
    }
    run_all(engine);
    for (int i = 0; i < REQUESTS; i++) take(engine, ids[i], &asked[i]);
    for (int i = 0; i < REQUESTS; i++) check_alike(model, &asked[i], "beside others");
    tt_generation_destroy(engine);
}

/* `next` begins with `kept` tokens of `before` and its answer, and has others behind. */
static struct asked continue_from(const struct asked *before, size_t kept)
{
    struct asked next = make_request(9, kept + MORE, 8);
    for (size_t i = 0; i < kept; i++)
        next.prompt[i] = i < before->count ? before->prompt[i] : before->answer[i - before->count];
    return next;
}

static void check_turns(struct model *model)
{
    struct tt_generation_engine *engine = open_engine(model, 2);
    struct asked first = make_request(5, FIRST, 10), second, third;
    answer(engine, &first);
    second = continue_from(&first, FIRST + 10);
    answer(engine, &second);
    assert_int_equal(second.reused, FIRST + 9); /* the last token of the answer was not computed with */
    check_alike(model, &second, "a second turn");
    third = continue_from(&first, FIRST - 3);
    answer(engine, &third);
    assert_int_equal(third.reused, BLOCK); /* where its last whole block ends */
    check_alike(model, &third, "a shorter beginning");
    third = continue_from(&first, BLOCK - 1);
    answer(engine, &third);
    assert_int_equal(third.reused, 0);
    check_alike(model, &third, "a beginning without a state");
    tt_generation_destroy(engine);
}

/* A prompt of `shared` tokens that all have, and of others. */
static struct asked share(int seed, size_t shared, size_t more)
{
    struct asked asked = make_request(seed, shared + more, 8), common = make_request(77, shared, 0);
    memcpy(asked.prompt, common.prompt, shared * sizeof *asked.prompt);
    return asked;
}

/* Requests that come together compute what they share once; those that come later, while others run or when their slots
 * have other texts, go on from it too. Parts of prompts are as short as a pass may be. */
static void check_shared(struct model *model)
{
    enum { SLOTS = 3, COUNT = 4, SHARED = 3 * BLOCK + 5 };
    const struct tt_generation_limits limits = {.slots = SLOTS, .length = LENGTH, .pass_tokens = SLOTS + 16};
    struct tt_generation_engine *engine = NULL;
    struct asked asked[COUNT], later = share(40, SHARED, 9), again;
    int64_t ids[COUNT];
    test_must(tt_generation_open(&model->device, &model->inputs, &limits, &engine));
    for (int i = 0; i < COUNT; i++) {
        asked[i] = share(i, SHARED, (size_t)(3 + 4 * i));
        asked[i].wanted = 20;
        ids[i] = submit(engine, &asked[i]);
    }
    run_all(engine);
    for (int i = 0; i < COUNT; i++) take(engine, ids[i], &asked[i]);
    assert_int_equal(asked[0].reused, 0);
    for (int i = 1; i < COUNT; i++) assert_int_equal(asked[i].reused, 3 * BLOCK);
    for (int i = 0; i < COUNT; i++) check_alike(model, &asked[i], "prompts that come together");
    answer(engine, &later);
    assert_int_equal(later.reused, 3 * BLOCK);
    check_alike(model, &later, "a prompt that comes later");
    again = later;
    answer(engine, &again);
    assert_int_equal(again.reused, (later.count - 1) / BLOCK * BLOCK);
    check_alike(model, &again, "the same prompt");
    tt_generation_forget(engine);
    answer(engine, &again);
    assert_int_equal(again.reused, 0);
    tt_generation_destroy(engine);
}

/* The states of many prompts do not fit: those used longest ago are gone, and a slot's own go with its text. */
static void check_eviction(struct model *model)
{
    struct tt_generation_engine *engine = open_engine(model, 2);
    struct asked asked[REQUESTS], same;
    for (int i = 0; i < REQUESTS; i++) {
        asked[i] = make_request(20 + i, 40, 8);
        answer(engine, &asked[i]);
        assert_int_equal(asked[i].reused, 0);
    }
    same = continue_from(&asked[REQUESTS - 1], 35); /* of two places both are of the last two prompts */
    answer(engine, &same);
    assert_int_equal(same.reused, 2 * BLOCK);
    check_alike(model, &same, "behind other prompts");
    same = continue_from(&asked[0], 35);
    answer(engine, &same);
    assert_int_equal(same.reused, 0);
    check_alike(model, &same, "a prompt whose state is gone");
    tt_generation_destroy(engine);
}

static void states_belong_to_their_sequences(void **state)
{
    static const char *const folders[] = {GOLDEN "qwen3_5_text/model", GOLDEN "granitemoehybrid/model",
                                          GOLDEN "lfm2/model", GOLDEN "qwen3_next/model",
                                          GOLDEN "nemotron_h/model"};
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct model model;
        open_model(folders[i], NULL, &model);
        check_beside(&model);
        check_turns(&model);
        check_shared(&model);
        check_eviction(&model);
        tt_inputs_close(&model.inputs);
    }
}

/* A state that one adapter made is of no use to another, or to the base. */
static void states_belong_to_adapters(void **state)
{
    enum { COUNT = 4 };
    struct model model;
    struct asked asked[COUNT];
    int64_t ids[COUNT];
    (void)state;
    open_model(GOLDEN "qwen3_5_text/model", GOLDEN "qwen3_5_text/adapter_final", &model);
    struct tt_generation_engine *engine = open_engine(&model, COUNT);
    for (int i = 0; i < COUNT; i++) {
        asked[i] = share(i, 3 * BLOCK, 6);
        asked[i].adapter_off = i % 2 == 1;
        ids[i] = submit(engine, &asked[i]);
    }
    run_all(engine);
    for (int i = 0; i < COUNT; i++) take(engine, ids[i], &asked[i]);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(asked[i].reused, i < 2 ? 0 : 3 * BLOCK);
        check_alike(&model, &asked[i], "beside another adapter");
    }
    assert_memory_not_equal(asked[0].answer, asked[1].answer, 8 * sizeof *asked[0].answer);
    tt_generation_destroy(engine);
    tt_inputs_close(&model.inputs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(states_belong_to_their_sequences),
                                       cmocka_unit_test(states_belong_to_adapters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
