/* infer/generation_engine.h: answers do not depend on what else runs, on order, limits or reuse; they are those of
 * transformers; requests end, are cancelled and are refused as the header says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/rng.h"
#include "engine/rank_config.h"
#include "infer/generation_rank.h"
#include "job/inputs.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
enum { REQUESTS = 14, LENGTH = 96, PROMPT_MAX = 50, NEW_MAX = 24, VOCAB = 263 };

static struct tt_inputs inputs;
/* With TT_TEST_DEVICE=cuda the answers are a GPU's; only the borrowed rank is on the CPU, with the same answers. */
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

static struct tt_generation_engine *open_engine(int64_t slots, int64_t pass_tokens)
{
    struct tt_generation_engine *engine = NULL;
    const struct tt_generation_limits limits = {.slots = slots, .length = LENGTH, .pass_tokens = pass_tokens};
    test_must(tt_generation_open(&device, &inputs, &limits, &engine));
    return engine;
}

/* A request with its prompt, and the answer that it got. */
struct asked {
    struct tt_generation_request request;
    int32_t prompt[PROMPT_MAX], answer[NEW_MAX];
    size_t answered;
    enum tt_generation_state state;
    size_t reused;
};

/* Requests of all kinds: half of them sampled, a third without the adapter, some with a common beginning. */
static void make_requests(struct asked *asked)
{
    struct tt_rng rng = tt_rng_make(21);
    uint64_t at = 0;
    memset(asked, 0, REQUESTS * sizeof *asked);
    for (int i = 0; i < REQUESTS; i++) {
        size_t count = 1 + (size_t)(tt_rng_u64(rng, at++) % PROMPT_MAX);
        for (size_t t = 0; t < count; t++)
            asked[i].prompt[t] = (int32_t)(3 + tt_rng_u64(rng, at++) % (VOCAB - 3));
        if (i % 3 == 1) memcpy(asked[i].prompt, asked[0].prompt, sizeof(int32_t) * (count / 2));
        asked[i].request = (struct tt_generation_request){
            .prompt = asked[i].prompt,
            .prompt_count = count,
            .max_new_tokens = 1 + (int64_t)(tt_rng_u64(rng, at++) % NEW_MAX),
            .sampling = {.sample = i % 2 == 1, .top_k = i % 4 == 1 ? 20 : 0, .temperature = 1.5},
            .seed = (uint64_t)i / 4,
            .ignore_end = i % 5 != 0,
            .adapter_off = i % 3 == 2,
        };
        if (i % 7 == 6) asked[i].request.sampling.repetition_penalty = 1.4;
    }
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
    assert_true(tt_generation_is_finished(progress.state) && progress.count <= NEW_MAX);
    memcpy(asked->answer, progress.tokens, progress.count * sizeof *asked->answer);
    asked->answered = progress.count;
    asked->state = progress.state;
    asked->reused = progress.prompt_reused;
    tt_generation_release(engine, id);
}

/* One at a time, each with an engine that has computed nothing before. */
static void answer_alone(struct asked *asked)
{
    for (int i = 0; i < REQUESTS; i++) {
        struct tt_generation_engine *engine = open_engine(1, 0);
        int64_t id;
        test_must(tt_generation_submit(engine, &asked[i].request, &id));
        run_all(engine);
        take(engine, id, &asked[i]);
        assert_int_equal(asked[i].reused, 0);
        tt_generation_destroy(engine);
    }
}

static void compare(const struct asked *got, const struct asked *wanted, const char *where)
{
    for (int i = 0; i < REQUESTS; i++) {
        if (got[i].answered != wanted[i].answered || got[i].state != wanted[i].state ||
            memcmp(got[i].answer, wanted[i].answer, got[i].answered * sizeof(int32_t)) != 0)
            fail_msg("%s: the answer to request %d is another one", where, i);
    }
}

/* Any number of slots, chunks of prompts of any length, any order, submitted at once or one a step. */
static void the_same_answers_whatever_runs_beside(void **state)
{
    static const struct {
        int64_t slots, pass_tokens;
        int stride; /* coprime to REQUESTS: the order */
        bool one_a_step;
    } runs[] = {{1, 1, 1, false}, {2, 1, 3, false},   {3, 40, 5, true},
                {5, 1, 9, true},  {16, 0, 13, false}, {14, 31, 11, true}};
    struct asked wanted[REQUESTS], got[REQUESTS];
    (void)state;
    make_requests(wanted);
    answer_alone(wanted);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        struct tt_generation_engine *engine = open_engine(runs[r].slots, runs[r].pass_tokens);
        int64_t ids[REQUESTS];
        char where[40];
        bool busy;
        make_requests(got);
        for (int n = 0; n < REQUESTS; n++) {
            int i = n * runs[r].stride % REQUESTS;
            test_must(tt_generation_submit(engine, &got[i].request, &ids[i]));
            if (runs[r].one_a_step) test_must(tt_generation_step(engine, &busy));
        }
        run_all(engine);
        for (int i = 0; i < REQUESTS; i++) take(engine, ids[i], &got[i]);
        (void)snprintf(where, sizeof where, "run %zu", r);
        compare(got, wanted, where);
        struct tt_generation_load load = tt_generation_load_of(engine);
        assert_true(load.waiting == 0 && load.running == 0 && load.finished == 0);
        tt_generation_destroy(engine);
    }
}

/* Each kind of end occurs among the requests, or the test above would compare less than it says. */
static void answers_end_in_both_ways(void **state)
{
    struct asked asked[REQUESTS];
    size_t longest = 0, full = 0;
    (void)state;
    make_requests(asked);
    answer_alone(asked);
    for (int i = 0; i < REQUESTS; i++) {
        full += asked[i].state == TT_GENERATION_LENGTH;
        assert_int_equal(asked[i].state == TT_GENERATION_LENGTH,
                         asked[i].answered == (size_t)asked[i].request.max_new_tokens);
        if (asked[i].answered > longest) longest = asked[i].answered;
    }
    assert_true(longest > 12 && full >= REQUESTS / 2);
    /* The same request ends at any of its tokens that becomes a stop id, which is not part of the answer. */
    struct asked *first = &asked[0];
    for (int i = 0; i < REQUESTS; i++)
        if (asked[i].answered > first->answered) first = &asked[i];
    struct tt_generation_engine *engine = open_engine(2, 0);
    struct tt_generation_request request = first->request;
    struct tt_generation_progress progress;
    int64_t id;
    size_t at = 0;
    const int32_t stop = first->answer[first->answered - 1];
    while (first->answer[at] != stop) at++;
    request.stop_ids = &stop;
    request.stop_count = 1;
    test_must(tt_generation_submit(engine, &request, &id));
    run_all(engine);
    test_must(tt_generation_poll(engine, id, &progress));
    assert_int_equal(progress.state, TT_GENERATION_ENDED);
    assert_int_equal(progress.end_id, stop);
    assert_int_equal(progress.count, at);
    tt_generation_destroy(engine);
}

static size_t read_ids(const struct tt_json_value *list, int32_t *ids)
{
    for (size_t i = 0; i < tt_json_count(list); i++) ids[i] = (int32_t)tt_json_integer(tt_json_at(list, i));
    return tt_json_count(list);
}

/* All of transformers' cases of llama3 at the same time, with and without the adapter. */
static void greedy_as_transformers(void **state)
{
    struct tt_json json = {0};
    struct tt_generation_engine *engine = open_engine(3, 0);
    int64_t ids[64];
    size_t count = 0;
    (void)state;
    test_must(tt_json_read(GOLDEN "llama3/generate.json", 1 << 20, &json));
    const struct tt_json_value *cases = tt_json_get(json.root, "cases");
    int64_t new_tokens = tt_json_integer(tt_json_get(json.root, "max_new_tokens"));
    for (size_t i = 0; i < tt_json_count(cases); i++)
        for (int off = 0; off < 2; off++) {
            int32_t prompt[PROMPT_MAX];
            size_t length = read_ids(tt_json_get(tt_json_at(cases, i), "prompt"), prompt);
            struct tt_generation_request request = {.prompt = prompt,
                                                    .prompt_count = length,
                                                    .max_new_tokens = new_tokens,
                                                    .ignore_end = true,
                                                    .adapter_off = off == 1};
            test_must(tt_generation_submit(engine, &request, &ids[count++]));
        }
    run_all(engine);
    for (size_t i = 0; i < count; i++) {
        int32_t wanted[NEW_MAX];
        struct tt_generation_progress progress;
        size_t length = read_ids(
            tt_json_get(tt_json_get(tt_json_at(cases, i / 2), i % 2 == 1 ? "base" : "adapter_random"), "ids"),
            wanted);
        test_must(tt_generation_poll(engine, ids[i], &progress));
        assert_true(length > 0 && progress.count >= length);
        assert_memory_equal(progress.tokens, wanted, length * sizeof *wanted);
    }
    assert_true(count >= 4);
    tt_generation_destroy(engine);
    tt_json_deinit(&json);
}

/* A conversation computes only its new turn; a prompt that others begin with is computed once, also when all come at
 * the same time; the other mode of the adapter shares nothing. */
static void common_prompts_are_computed_once(void **state)
{
    enum { COMMON = 45 };
    struct tt_generation_engine *engine = open_engine(4, 32);
    struct asked asked[REQUESTS] = {0};
    int64_t ids[5];
    (void)state;
    for (int i = 0; i < 5; i++) {
        for (int t = 0; t < PROMPT_MAX; t++) asked[i].prompt[t] = 10 + t * 3 % 200;
        asked[i].prompt[COMMON] = 100 + i;
        asked[i].request = (struct tt_generation_request){.prompt = asked[i].prompt,
                                                          .prompt_count = PROMPT_MAX,
                                                          .max_new_tokens = 8,
                                                          .ignore_end = true,
                                                          .adapter_off = i == 4};
        test_must(tt_generation_submit(engine, &asked[i].request, &ids[i]));
    }
    run_all(engine);
    for (int i = 0; i < 5; i++) take(engine, ids[i], &asked[i]);
    assert_int_equal(asked[0].reused, 0);
    for (int i = 1; i < 4; i++) assert_int_equal(asked[i].reused, COMMON);
    assert_int_equal(asked[4].reused, 0);
    assert_int_equal(tt_generation_load_of(engine).reused, 3 * COMMON);

    /* The next turn of the conversation of request 2: all but the last token of its answer is in the cache. */
    struct asked turn = {0};
    int32_t prompt[LENGTH];
    memcpy(prompt, asked[2].prompt, sizeof asked[2].prompt);
    memcpy(prompt + PROMPT_MAX, asked[2].answer, 8 * sizeof(int32_t));
    prompt[PROMPT_MAX + 8] = 77;
    turn.request = (struct tt_generation_request){
        .prompt = prompt, .prompt_count = PROMPT_MAX + 9, .max_new_tokens = 9, .ignore_end = true};
    test_must(tt_generation_submit(engine, &turn.request, &ids[0]));
    run_all(engine);
    struct asked alone = turn;
    take(engine, ids[0], &turn);
    assert_int_equal(turn.reused, PROMPT_MAX + 7);
    tt_generation_destroy(engine);

    engine = open_engine(1, 0);
    test_must(tt_generation_submit(engine, &alone.request, &ids[0]));
    run_all(engine);
    take(engine, ids[0], &alone);
    assert_int_equal(alone.reused, 0);
    assert_memory_equal(alone.answer, turn.answer, sizeof turn.answer);
    tt_generation_destroy(engine);
}

static void requests_are_cancelled_and_released(void **state)
{
    struct tt_generation_engine *engine = open_engine(2, 0);
    struct asked asked[REQUESTS];
    struct tt_generation_progress progress;
    int64_t ids[4];
    bool busy;
    (void)state;
    make_requests(asked);
    for (int i = 0; i < 4; i++) {
        asked[i].request.max_new_tokens = NEW_MAX;
        asked[i].request.ignore_end = true;
        test_must(tt_generation_submit(engine, &asked[i].request, &ids[i]));
    }
    for (int i = 0; i < 4; i++) test_must(tt_generation_step(engine, &busy));
    test_must(tt_generation_poll(engine, ids[0], &progress));
    assert_int_equal(progress.state, TT_GENERATION_RUNNING);
    size_t made = progress.count;
    assert_true(made > 0 && progress.prompt_done == asked[0].request.prompt_count);
    test_must(tt_generation_poll(engine, ids[3], &progress));
    assert_int_equal(progress.state, TT_GENERATION_WAITING);
    tt_generation_cancel(engine, ids[0]); /* runs */
    tt_generation_cancel(engine, ids[3]); /* waits */
    run_all(engine);
    test_must(tt_generation_poll(engine, ids[0], &progress));
    assert_int_equal(progress.state, TT_GENERATION_CANCELLED);
    assert_int_equal(progress.count, made);
    test_must(tt_generation_poll(engine, ids[3], &progress));
    assert_true(progress.state == TT_GENERATION_CANCELLED && progress.count == 0);
    test_must(tt_generation_poll(engine, ids[2], &progress));
    assert_int_equal(progress.state, TT_GENERATION_LENGTH);
    assert_int_equal(tt_generation_load_of(engine).finished, 4);
    tt_generation_cancel(engine, ids[2]); /* has finished: no effect */
    test_must(tt_generation_poll(engine, ids[2], &progress));
    assert_int_equal(progress.state, TT_GENERATION_LENGTH);
    tt_generation_release(engine, ids[1]);
    tt_generation_release(engine, ids[1]);
    assert_int_equal(tt_generation_poll(engine, ids[1], &progress), TT_ERR_USAGE);
    assert_int_equal(tt_generation_load_of(engine).finished, 3);
    tt_generation_cancel(engine, 12345);
    test_must(tt_generation_step(engine, &busy));
    assert_false(busy);
    tt_generation_destroy(engine);
}

static void check_refused(struct tt_generation_engine *engine, const struct tt_generation_request *request,
                          tt_status status, const char *text)
{
    int64_t id = -7;
    assert_int_equal(tt_generation_submit(engine, request, &id), status);
    assert_non_null(strstr(tt_error_last()->message, text));
    assert_int_equal(id, -7);
    assert_int_equal(tt_generation_load_of(engine).waiting, 0);
}

static void wrong_requests_are_refused(void **state)
{
    struct tt_generation_engine *engine = open_engine(1, 0);
    int32_t prompt[LENGTH] = {5, 6, 7};
    const struct tt_generation_request good = {.prompt = prompt, .prompt_count = 3, .max_new_tokens = 2};
    struct tt_generation_request request = good;
    (void)state;
    request.prompt_count = 0;
    check_refused(engine, &request, TT_ERR_DATA, "the prompt has no tokens");
    request.prompt_count = LENGTH - 1;
    check_refused(engine, &request, TT_ERR_DATA, "this is more than the limit of 96");
    request = good;
    request.max_new_tokens = -1;
    check_refused(engine, &request, TT_ERR_USAGE, "max_new_tokens is -1");
    request.max_new_tokens = INT64_MAX;
    check_refused(engine, &request, TT_ERR_DATA, "this is more than the limit of 96");
    request = good;
    request.sampling.top_p = 2;
    check_refused(engine, &request, TT_ERR_USAGE, "top_p is 2");
    prompt[1] = VOCAB;
    check_refused(engine, &good, TT_ERR_DATA, "the prompt has the id 263, but the model has 263 embeddings");
    prompt[1] = -1;
    check_refused(engine, &good, TT_ERR_DATA, "the prompt has the id -1");
    tt_generation_destroy(engine);
}

static void limits_hold(void **state)
{
    static const struct tt_generation_limits wrong[] = {
        {.slots = 0, .length = 10}, {.slots = 1, .length = 1}, {.slots = 1, .length = 513}};
    struct tt_generation_limits limits = {.slots = 1, .length = 16, .waiting = 2};
    const int32_t prompt[] = {5, 6, 7};
    const struct tt_generation_request request = {.prompt = prompt, .prompt_count = 3, .max_new_tokens = 13};
    struct tt_generation_engine *engine = NULL;
    int64_t id;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(tt_generation_open(&device, &inputs, &wrong[i], &engine), TT_ERR_USAGE);
        assert_null(engine);
    }
    test_must(tt_generation_open(&device, &inputs, &limits, &engine));
    assert_int_equal(tt_generation_limits_of(engine)->pass_tokens, 16);
    for (int i = 0; i < 2; i++) test_must(tt_generation_submit(engine, &request, &id));
    assert_int_equal(tt_generation_submit(engine, &request, &id), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "2 requests wait already"));
    run_all(engine);
    test_must(tt_generation_submit(engine, &request, &id));
    assert_true(tt_generation_has_adapter(engine));
    tt_generation_destroy(engine);
    tt_generation_destroy(NULL);
}

/* Where nobody asked for a number, a GPU's slots follow from its memory; a processor's do not. */
static void slots_follow_from_memory(void **state)
{
    const struct tt_device_config cpu = {.kind = "cpu"}, gpu = {.kind = "h100"};
    struct tt_rank_layout layout = {.world_size = 2, .device = gpu};
    struct tt_generation_choice choice = {.limits = {.length = 64}, .open = true, .strategy = TT_NO_SHARD};
    struct tt_generation_limits *limits = &choice.limits;
    struct tt_plan plan = {.limit_bytes = 1000, .memory.total_peak = 901};
    (void)state;
    tt_generation_limits_open(&cpu, 1000, 8, limits);
    assert_int_equal(limits->slots, 8);
    assert_false(tt_generation_limits_less(&cpu, limits));
    tt_generation_limits_open(&gpu, 5, 8, limits);
    assert_int_equal(limits->slots, 5);
    assert_false(tt_generation_limits_less(&gpu, limits));
    tt_generation_limits_open(&gpu, 1000, 100, limits);
    assert_int_equal(limits->slots, 256);
    assert_true(tt_generation_limits_are_tight(limits, &plan, UINT64_MAX));
    choice.slots = limits->slots;
    const int64_t wanted[] = {128, 100, 256, 128, 100};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_true(tt_generation_choose_less(&layout, &choice));
        assert_int_equal(limits->slots, wanted[i]);
        assert_int_equal(choice.strategy, i < 2 ? TT_NO_SHARD : TT_FULL_SHARD);
        assert_true(limits->pass_tokens >= limits->slots);
        assert_false(choice.split_vocabulary);
    }
    assert_false(tt_generation_limits_are_tight(limits, &plan, UINT64_MAX));
    assert_true(tt_generation_choose_less(&layout, &choice));
    assert_true(choice.split_vocabulary);
    assert_false(tt_generation_choose_less(&layout, &choice));
    tt_generation_limits_open(&gpu, 1000, 8, limits);
    plan.memory.total_peak = 900;
    assert_false(tt_generation_limits_are_tight(limits, &plan, UINT64_MAX));
    assert_true(tt_generation_limits_are_tight(limits, &plan, 999));
}

/* A rank that evaluates, planned for a generation too, with a device that has exactly the planned memory. */
static tt_status borrow(size_t less_memory, struct asked *asked, struct tt_plan *plan)
{
    static const struct tt_shard_spec shard = {.sharding_strategy = TT_FULL_SHARD};
    const struct tt_batch_limits evaluation = {.tokens = 24, .sequences = 2, .rows = 24, .length = 16},
                                 none = {0};
    struct tt_rank_layout layout = {.world_size = 1, .machines = 1, .ranks_per_machine = 1};
    struct tt_generation_limits limits = {.slots = 3, .length = LENGTH};
    struct tt_generation_engine *engine = NULL;
    struct tt_world_rank place = {0};
    struct tt_rank_config config;
    struct tt_rank rank = {0};
    struct tt_memory_use memory;
    int64_t ids[REQUESTS];
    tt_status status = TT_OK;
    layout.device = (struct tt_device_config){.kind = "cpu", .threads = 2};
    test_must(tt_comm_create_self(&place.comm));
    test_must(tt_rank_config_make(&shard, &layout, &inputs.model_facts, &inputs.model_options,
                                  TT_RANK_EVALUATES, NULL, &config));
    tt_generation_limits_fill(&layout.device, &limits);
    const struct tt_batch_limits generation = tt_generation_batch_limits(&limits);
    config.limits = tt_batch_limits_join(&evaluation, &generation);
    test_must(tt_plan_make(&config, tt_rank_layout_ranks(&layout), 1, &none, &evaluation, plan));
    test_must(tt_generation_plan(&config, &limits, plan));
    place.device = layout.device;
    place.device.memory_limit = plan->memory.total_peak - less_memory;
    config = tt_rank_config_of(&config, &place, plan);
    TT_GO(tt_rank_init(&config, &rank));
    TT_GO(tt_rank_load(&rank, &inputs.source));
    TT_GO(tt_generation_attach(&rank, &inputs, &limits, &engine));
    for (int i = 0; i < REQUESTS; i++) test_must(tt_generation_submit(engine, &asked[i].request, &ids[i]));
    run_all(engine);
    for (int i = 0; i < REQUESTS; i++) take(engine, ids[i], &asked[i]);
    tt_device_memory(rank.device, &memory);
    assert_int_equal(memory.total_peak, plan->memory.total_peak);
out:
    tt_generation_destroy(engine);
    tt_rank_deinit(&rank);
    tt_comm_destroy(place.comm);
    return status;
}

static void a_rank_is_borrowed_and_its_plan_is_exact(void **state)
{
    static struct tt_plan plan;
    struct asked wanted[REQUESTS], got[REQUESTS];
    (void)state;
    make_requests(wanted);
    answer_alone(wanted);
    make_requests(got);
    test_must(borrow(0, got, &plan));
    compare(got, wanted, "borrowed rank");
    size_t bytes = plan.memory.total_peak;
    make_requests(got);
    assert_int_equal(borrow(1, got, &plan), TT_ERR_MEMORY);
    assert_int_equal(plan.memory.total_peak, bytes);
}

/* Answers with the adapter and without it run in one batch: on a GPU their passes of single tokens are recorded. */
static void passes_are_recorded_where_the_device_can(void **state)
{
    struct tt_generation_engine *engine = open_engine(4, 0);
    static const int32_t prompts[4][3] = {{5, 6, 7}, {8, 9, 10}, {11, 12, 13}, {14, 15, 16}};
    int64_t id;
    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct tt_generation_request request = {.prompt = prompts[i],
                                                      .prompt_count = 3,
                                                      .max_new_tokens = NEW_MAX,
                                                      .ignore_end = true,
                                                      .adapter_off = i % 2 == 1};
        test_must(tt_generation_submit(engine, &request, &id));
    }
    run_all(engine);
    struct tt_generation_load load = tt_generation_load_of(engine);
    bool gpu = device.choice == TT_DEVICE_CUDA;
    /* One pass has the prompts, and one more chooses algorithms. */
    assert_int_equal(load.passes, NEW_MAX);
    assert_int_equal(load.recorded, gpu ? NEW_MAX - 2 : 0);
    tt_generation_destroy(engine);
}

/* A request has all the memory of its answer when it is taken: no step allocates for it. */
static void steps_need_no_memory(void **state)
{
    enum { NEW = 60 };
    static const int32_t prompt[3] = {5, 6, 7};
    struct tt_generation_engine *engine = open_engine(2, 0);
    const struct tt_generation_request request = {.prompt = prompt,
                                                  .prompt_count = 3,
                                                  .max_new_tokens = NEW,
                                                  .ignore_end = true,
                                                  .wants_logprobs = true,
                                                  .top_logprobs = TT_TOP_LOGPROBS_MAX};
    struct tt_generation_progress progress;
    int64_t id;
    (void)state;
    test_must(tt_generation_submit(engine, &request, &id)); /* the first one makes what all use */
    run_all(engine);
    test_must(tt_generation_submit(engine, &request, &id));
    uint64_t before = tt_alloc_count();
    run_all(engine);
    assert_int_equal(tt_alloc_count() - before, 0);
    test_must(tt_generation_poll(engine, id, &progress));
    assert_int_equal(progress.count, NEW);
    tt_generation_destroy(engine);
}

static void seeds_of_many(void **state)
{
    (void)state;
    assert_true(tt_generation_seed(42, 0) == 42);
    assert_true(tt_generation_seed(42, 1) != tt_generation_seed(42, 2));
    assert_true(tt_generation_seed(42, 1) != tt_generation_seed(43, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_answers_whatever_runs_beside),
        cmocka_unit_test(answers_end_in_both_ways),
        cmocka_unit_test(greedy_as_transformers),
        cmocka_unit_test(common_prompts_are_computed_once),
        cmocka_unit_test(requests_are_cancelled_and_released),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(slots_follow_from_memory),
        cmocka_unit_test(a_rank_is_borrowed_and_its_plan_is_exact),
        cmocka_unit_test(passes_are_recorded_where_the_device_can),
        cmocka_unit_test(steps_need_no_memory),
        cmocka_unit_test(seeds_of_many),
    };
    return cmocka_run_group_tests(tests, open_inputs, close_inputs);
}
