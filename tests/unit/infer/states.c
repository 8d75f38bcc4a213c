/* Generation of models whose layers carry a state (nn/kv_states.h): answers of 64 tokens, computed beside others of
 * other lengths, are those of each request alone. A prompt goes on from a slot only where it begins with all of the
 * slot's tokens, because a state cannot go back; its answer is that of the whole prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "infer/generation_engine.h"
#include "job/inputs.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/dense/"
enum { REQUESTS = 4, PROMPT_MAX = 100, NEW = 64, VOCAB = 96, LENGTH = 128, FIRST = 20, MORE = 5 };

struct model {
    struct tt_inputs inputs;
    struct tt_device_spec device;
};

struct asked {
    int32_t prompt[PROMPT_MAX], answer[NEW];
    size_t count, reused;
    int64_t wanted; /* tokens of the answer */
};

static void open_model(const char *folder, struct model *model)
{
    static const struct tt_quantization_config plain;
    struct tt_model_spec spec = {.model_name_or_path = folder};
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
    third = continue_from(&first, FIRST - 4);
    answer(engine, &third);
    assert_int_equal(third.reused, 0);
    check_alike(model, &third, "a shorter beginning");
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
        open_model(folders[i], &model);
        check_beside(&model);
        check_turns(&model);
        tt_inputs_close(&model.inputs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(states_belong_to_their_sequences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
