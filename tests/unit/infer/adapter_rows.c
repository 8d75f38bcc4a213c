/* infer/generation_engine.h: what requests with an adapter and without one leave to each other, in a pass and in the
 * cache. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "infer/generation_engine.h"
#include "job/inputs.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
enum { LENGTH = 96, PROMPT = 20, NEW = 8 };

static struct tt_device_spec device = {.choice = TT_DEVICE_CPU, .threads = 2};

/* An engine of two slots, with the inputs of a model. */
static struct tt_generation_engine *open_engine(const struct tt_model_spec *model, struct tt_inputs *inputs)
{
    static const struct tt_quantization_config plain;
    static const struct tt_generation_limits limits = {.slots = 2, .length = LENGTH};
    const struct tt_inputs_config config = {
        .use = TT_INPUTS_GENERATE, .model = model, .quantization = &plain, .device = &device};
    struct tt_generation_engine *engine = NULL;
    *inputs = (struct tt_inputs){0};
    test_must(tt_inputs_open(&config, inputs));
    test_must(tt_generation_open(&device, inputs, &limits, &engine));
    return engine;
}

static void run_all(struct tt_generation_engine *engine)
{
    int steps = 0;
    for (bool busy = true; busy; steps++) {
        test_must(tt_generation_step(engine, &busy));
        assert_true(steps < 200);
    }
}

/* The prompt's ids begin with those of the golden adapter's trained rows. */
static struct tt_generation_request make_request(void)
{
    static int32_t prompt[PROMPT] = {217, 48, 107, 9};
    for (int32_t t = 4; t < PROMPT; t++) prompt[t] = 3 * t;
    return (struct tt_generation_request){.prompt = prompt,
                                          .prompt_count = PROMPT,
                                          .max_new_tokens = NEW,
                                          .ignore_end = true,
                                          .wants_logprobs = true};
}

static void take_logprobs(struct tt_generation_engine *engine, int64_t id, float logprobs[NEW])
{
    struct tt_generation_progress progress;
    test_must(tt_generation_poll(engine, id, &progress));
    assert_int_equal(progress.logprob_count, NEW);
    for (int i = 0; i < NEW; i++) logprobs[i] = progress.logprobs[i].logprob;
    tt_generation_release(engine, id);
}

static float difference(const float a[NEW], const float b[NEW])
{
    float most = 0;
    for (int i = 0; i < NEW; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

/* Rows of tokens are the adapter's: answers of the base beside it have the table's own. */
static void the_base_has_no_trained_rows(void **state)
{
    static const struct tt_model_spec model = {.model_name_or_path = GOLDEN "llama2/model",
                                               .adapter_name_or_path =
                                                   GOLDEN "adapters/curves/tokens/adapter_final"};
    float alone[2][NEW], beside[2][NEW];
    struct tt_inputs inputs;
    int64_t ids[2];
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct tt_generation_engine *engine = open_engine(&model, &inputs);
        struct tt_generation_request request = make_request();
        request.adapter_off = off == 1;
        test_must(tt_generation_submit(engine, &request, &ids[off]));
        run_all(engine);
        take_logprobs(engine, ids[off], alone[off]);
        tt_generation_destroy(engine);
        tt_inputs_close(&inputs);
    }
    struct tt_generation_engine *engine = open_engine(&model, &inputs);
    for (int off = 0; off < 2; off++) {
        struct tt_generation_request request = make_request();
        request.adapter_off = off == 1;
        test_must(tt_generation_submit(engine, &request, &ids[off]));
    }
    run_all(engine);
    for (int off = 0; off < 2; off++) take_logprobs(engine, ids[off], beside[off]);
    tt_generation_destroy(engine);
    tt_inputs_close(&inputs);
    assert_true(difference(alone[0], alone[1]) > 0.05f); /* else the adapter would change nothing */
    for (int off = 0; off < 2; off++) assert_true(difference(beside[off], alone[off]) < 0.01f);
}

/* A request that runs when its place is loaded anew, as one whose end is still under way to a rank. */
static void a_loaded_adapter_takes_over_nothing(void **state)
{
    static const struct tt_model_spec model = {
        .model_name_or_path = GOLDEN "llama3/model", .adapter_places = 2, .adapter_rank = 4};
    struct tt_inputs inputs;
    struct tt_generation_engine *engine = open_engine(&model, &inputs);
    struct tt_generation_request request = make_request();
    struct tt_generation_progress progress;
    tt_status verdict;
    int64_t id;
    bool busy;
    (void)state;
    request.adapter = 1;
    test_must(tt_generation_load_adapter(engine, GOLDEN "llama3/adapter_final", 1, &verdict));
    test_must(verdict);
    test_must(tt_generation_submit(engine, &request, &id));
    for (int i = 0; i < 3; i++) test_must(tt_generation_step(engine, &busy));
    test_must(tt_generation_load_adapter(engine, GOLDEN "llama3/adapter_random", 1, &verdict));
    test_must(verdict);
    test_must(tt_generation_poll(engine, id, &progress));
    assert_int_equal(progress.state, TT_GENERATION_CANCELLED);
    tt_generation_release(engine, id);
    test_must(tt_generation_submit(engine, &request, &id));
    run_all(engine);
    test_must(tt_generation_poll(engine, id, &progress));
    assert_int_equal(progress.count, NEW);
    assert_int_equal(progress.prompt_reused, 0);
    tt_generation_destroy(engine);
    tt_inputs_close(&inputs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_base_has_no_trained_rows),
        cmocka_unit_test(a_loaded_adapter_takes_over_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
