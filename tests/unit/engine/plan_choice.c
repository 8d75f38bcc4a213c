/* The memory plan chooses the fastest levels that fit: the tighter the limit the slower and smaller, never
 * more than the limit, never a faster choice left out; what does not fit is refused with something that
 * would. Chips that are not there are planned for in milliseconds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "backend/chips.h"
#include "base/clock.h"
#include "engine/plan.h"
#include "support/model_facts.h"

static const char shape_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"intermediate_size\": 3072, \"num_hidden_layers\": "
    "12, "
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 128, \"vocab_size\": 4096, "
    "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, \"dtype\": \"bfloat16\"}";
static const char large_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"intermediate_size\": 3072, \"num_hidden_layers\": "
    "80, "
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 128, \"vocab_size\": 4096, "
    "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, \"dtype\": \"bfloat16\"}";
static struct tt_model_facts shape;

static int parse_shape(void **state)
{
    (void)state;
    return test_facts(shape_text, &shape) == TT_OK ? 0 : -1;
}

static const struct tt_batch_limits none,
    batch = {.tokens = 8192, .sequences = 4, .rows = 8192, .length = 2048};

static struct tt_rank_config rank_of(const char *chip, enum tt_recompute recompute, size_t limit)
{
    return (struct tt_rank_config){
        .device = {.kind = "plan", .stands_for = chip, .memory_limit = limit},
        .strategy = TT_FULL_SHARD,
        .model_facts = &shape,
        .model_options = {.compute_dtype = TT_BF16,
                          .random_init = true,
                          .lora = {.enabled = true, .r = 8, .alpha = 16, .target_modules = "all-linear"}},
        .train = true,
        .recompute = recompute,
        .backward_prefetch = TT_PREFETCH_PRE,
        .forward_prefetch = true,
        .reduce_dtype = TT_F32,
    };
}

static void make(const char *chip, enum tt_recompute recompute, size_t limit, struct tt_plan *plan)
{
    char text[2048];
    struct tt_rank_config rank = rank_of(chip, recompute, limit);
    if (tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, plan) == TT_OK) return;
    (void)tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}

static void each_level_takes_less_and_longer(void **state)
{
    static const enum tt_recompute order[] = {TT_RECOMPUTE_NONE, TT_RECOMPUTE_CHEAP, TT_RECOMPUTE_EVERY_BLOCK,
                                              TT_RECOMPUTE_EVERY_OFFLOAD};
    struct tt_plan plans[TT_LEVEL_COUNT];
    (void)state;
    for (int i = 0; i < TT_LEVEL_COUNT; i++) {
        make("h200", order[i], 0, &plans[i]);
        for (int b = 1; b <= 12; b++) assert_int_equal(plans[i].levels[b], i);
        assert_true(plans[i].fits);
        if (i == 0) continue;
        assert_true(plans[i].memory.total_peak < plans[i - 1].memory.total_peak);
        assert_true(plans[i].step_seconds > plans[i - 1].step_seconds);
    }
    assert_int_equal(plans[TT_RECOMPUTE_BLOCK].memory.host_total, 0);
    /* All inputs but those of the last two travel. */
    assert_int_equal(plans[TT_RECOMPUTE_OFFLOAD].memory.host[TT_PURPOSE_OFFLOAD], 10u * 8192 * 1024 * 2);
}

static int place_of(const struct tt_plan *plan)
{
    int place = 0;
    for (int b = 1; b <= 12; b++) {
        place += (int)plan->levels[b];
        assert_true(b == 1 || plan->levels[b] <= plan->levels[b - 1]); /* the first go first */
        assert_true(plan->levels[1] - plan->levels[b] <= 1);           /* neighbours on the path */
    }
    return place;
}

static void the_fastest_that_fits(void **state)
{
    struct tt_plan most, least, plan, before = {0};
    int last_place = -1;
    (void)state;
    make("h200", TT_RECOMPUTE_NONE, 0, &most);
    make("h200", TT_RECOMPUTE_EVERY_OFFLOAD, 0, &least);
    size_t high = most.memory.total_peak, low = least.memory.total_peak;
    for (int i = 0; i <= 24; i++) {
        size_t limit = high - (high - low) / 24 * (size_t)i;
        make("h200", TT_RECOMPUTE_AUTO, limit, &plan);
        assert_true(plan.fits);
        assert_true(plan.memory.total_peak <= limit);
        int place = place_of(&plan);
        assert_true(place >= last_place);
        assert_true(i == 0 || plan.step_seconds >= before.step_seconds * 0.9999);
        if (i == 0) assert_int_equal(place, 0);
        if (place > 0) { /* a byte less than the neighbour needs, no more: one block fewer would not fit */
            struct tt_plan tighter;
            make("h200", TT_RECOMPUTE_AUTO, plan.memory.total_peak, &tighter);
            assert_int_equal(place_of(&tighter), place);
        }
        last_place = place;
        before = plan;
    }
    assert_true(last_place >= 35);
}

/* One byte less than blocks that run again need: inputs wait on the host, and not just the one that must. */
static void what_waits_for_free_waits(void **state)
{
    struct tt_plan blocks, plan;
    (void)state;
    make("h200", TT_RECOMPUTE_EVERY_BLOCK, 0, &blocks);
    make("h200", TT_RECOMPUTE_AUTO, blocks.memory.total_peak - 1, &plan);
    assert_true(place_of(&plan) > TT_RECOMPUTE_BLOCK * 12 + 3);
    assert_true(plan.step_seconds <= blocks.step_seconds * 1.002);
}

static tt_status check_host(const struct tt_plan *plan, int ranks, uint64_t bytes, bool grouped)
{
    const struct tt_machine_memory machine = {.bytes = bytes, .ranks = ranks, .grouped = grouped};
    return tt_plan_check_host(plan, &machine);
}

/* All ranks of a machine share its memory: on the CPU all that they need, with a GPU the page-locked buffers. */
static void memory_of_the_machine(void **state)
{
    struct tt_plan plan;
    (void)state;
    make("cpu", TT_RECOMPUTE_AUTO, 0, &plan);
    assert_true(plan.fits && plan.is_host);
    size_t each = plan.memory.total_peak + plan.memory.host_total;
    assert_int_equal(check_host(&plan, 3, 3 * each, true), TT_OK);
    assert_int_equal(check_host(&plan, 3, 0, false), TT_OK);
    assert_int_equal(check_host(&plan, 3, 3 * each - 1, true), TT_ERR_MEMORY);
    assert_non_null(
        strstr(tt_error_last()->message, "for 3 ranks on this machine, the limit of its control group is"));
    assert_non_null(strstr(tt_error_last()->hint, "resources.limits.memory"));
    assert_int_equal(check_host(&plan, 1, each - 1, false), TT_ERR_MEMORY);
    assert_non_null(strstr(tt_error_last()->message, "which has"));
    plan.program_bytes = 1000;
    assert_int_equal(check_host(&plan, 3, 3 * each + 1000, true), TT_OK);
    assert_int_equal(check_host(&plan, 3, 3 * each + 999, true), TT_ERR_MEMORY);
    make("h200", TT_RECOMPUTE_EVERY_OFFLOAD, 0, &plan);
    assert_true(plan.memory.host_total > 0 && plan.memory.host_total < plan.memory.total_peak);
    assert_int_equal(check_host(&plan, 2, 2 * plan.memory.host_total, true), TT_OK);
    assert_int_equal(check_host(&plan, 2, 2 * plan.memory.host_total - 1, true), TT_ERR_MEMORY);
}

/* A rank's share of the machine is a limit of processors as a GPU's memory is of a GPU, and chooses nothing. */
static void processors_have_the_limit_of_their_machine(void **state)
{
    struct tt_plan whole, plan;
    struct tt_str text = {0};
    struct tt_rank_config rank = rank_of("cpu", TT_RECOMPUTE_AUTO, 0);
    (void)state;
    make("cpu", TT_RECOMPUTE_AUTO, 0, &whole);
    size_t each = whole.memory.total_peak + whole.memory.host_total, sum = 0;
    struct tt_plan_row rows[TT_PLAN_ROWS_MAX];
    for (int i = tt_plan_rows(&whole, rows) - 1; i >= 0; i--) sum += rows[i].bytes;
    assert_int_equal(sum, whole.memory.total_peak);
    assert_int_equal(whole.memory.peak[TT_PURPOSE_SCRATCH], tt_host_scratch_bytes(1));
    rank.device.machine = (struct tt_machine_memory){.bytes = 2 * each, .ranks = 2, .grouped = true};
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan), TT_OK);
    assert_true(plan.fits && plan.limit_bytes == each && tt_plan_need(&plan) == each);
    assert_memory_equal(plan.levels, whole.levels, sizeof plan.levels);
    rank.device.machine.bytes = 2 * each - 2;
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan), TT_OK);
    assert_false(plan.fits);
    assert_memory_equal(plan.levels, whole.levels, sizeof plan.levels);
    assert_int_equal(tt_plan_check(&plan), TT_ERR_MEMORY);
    assert_non_null(
        strstr(tt_error_last()->message, "for 2 ranks on this machine, the limit of its control group"));
    assert_non_null(
        strstr(tt_error_last()->hint, "what would fit: half of the --per_device_train_batch_size"));
    assert_int_equal(tt_plan_format(&plan, &text), TT_OK);
    assert_non_null(strstr(tt_str_text(&text), "of the control group"));
    assert_non_null(strstr(tt_str_text(&text), ", all its ranks: does not fit"));
    tt_str_deinit(&text);
    /* device_memory is for another machine, and chooses the levels. */
    rank.device.memory_limit = 4 * each;
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan), TT_OK);
    assert_true(plan.fits && plan.limit_bytes == 4 * each && plan.levels[12] < whole.levels[12]);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct tt_plan plan;
    struct tt_rank_config rank;
    (void)state;
    make("h200", TT_RECOMPUTE_NONE, (size_t)1800 << 20, &plan);
    assert_false(plan.fits);
    assert_int_equal(tt_plan_check(&plan), TT_ERR_MEMORY);
    assert_non_null(strstr(tt_error_last()->hint, "--recompute auto"));
    make("h200", TT_RECOMPUTE_EVERY_OFFLOAD, 0, &plan);
    rank = rank_of("h200", TT_RECOMPUTE_AUTO, plan.memory.total_peak - ((size_t)8 << 20));
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan), TT_OK);
    assert_false(plan.fits);
    assert_non_null(strstr(plan.advice, "per_device_train_batch_size"));
    for (int b = 1; b <= 12; b++) assert_int_equal(plan.levels[b], TT_RECOMPUTE_OFFLOAD);
    rank.device.stands_for = "abacus";
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan),
                     TT_ERR_USAGE);
}

static void cpus_recompute_unless_told_what_they_may_take(void **state)
{
    struct tt_plan plan;
    (void)state;
    make("cpu", TT_RECOMPUTE_AUTO, 0, &plan);
    assert_int_equal(plan.levels[1], TT_RECOMPUTE_BLOCK);
    assert_int_equal(plan.levels[12], TT_RECOMPUTE_BLOCK);
    assert_int_equal(plan.limit_bytes, 0);
    make("cpu", TT_RECOMPUTE_NO_BLOCK, 0, &plan);
    assert_int_equal(plan.levels[1], TT_KEEP_CHEAP);
    make("cpu", TT_RECOMPUTE_AUTO, (size_t)64 << 30, &plan);
    assert_int_equal(plan.levels[1], TT_KEEP_ALL);
    assert_int_equal(plan.memory.peak[TT_PURPOSE_CONTEXT], 0);
}

static void a_gpu_keeps_something_free(void **state)
{
    struct tt_plan plan;
    (void)state;
    make("rtx4090", TT_RECOMPUTE_AUTO, 0, &plan);
    size_t memory = tt_chip_find("rtx4090")->memory_bytes;
    assert_true(plan.limit_bytes < memory && plan.limit_bytes > memory / 100 * 97);
    assert_true(plan.memory.peak[TT_PURPOSE_CONTEXT] > 0 &&
                plan.memory.peak[TT_PURPOSE_SCRATCH] == (size_t)40 << 20);
    make("rtx4090", TT_RECOMPUTE_AUTO, (size_t)80 << 30, &plan); /* more than there is */
    assert_true(plan.limit_bytes < memory);
}

/* Micro steps repeat, the optimizer does not; half the tokens take about half the time. */
static void time_adds_up(void **state)
{
    struct tt_plan one, four, half;
    struct tt_batch_limits fewer = {.tokens = 4096, .sequences = 2, .rows = 4096, .length = 2048};
    (void)state;
    struct tt_rank_config rank = rank_of("h200", TT_RECOMPUTE_NONE, 0);
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){1, 1}, 1, &batch, &none, &one), TT_OK);
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){1, 1}, 4, &batch, &none, &four), TT_OK);
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){1, 1}, 1, &fewer, &none, &half), TT_OK);
    assert_true(four.step_seconds > 3.5 * one.step_seconds && four.step_seconds < 4 * one.step_seconds);
    assert_true(half.step_seconds > 0.45 * one.step_seconds && half.step_seconds < 0.7 * one.step_seconds);
    assert_int_equal(four.step_count, 4 * 8192);
}

static double step_over(struct tt_plan_ranks ranks, enum tt_shard_strategy strategy, double network,
                        size_t *weights)
{
    struct tt_plan plan;
    struct tt_rank_config rank = rank_of("h200", TT_RECOMPUTE_NONE, 0);
    rank.strategy = strategy;
    rank.device.network_bytes_per_second = network;
    assert_int_equal(tt_plan_make(&rank, ranks, 1, &batch, &none, &plan), TT_OK);
    if (weights != NULL) *weights = plan.memory.peak[TT_PURPOSE_WEIGHTS];
    return plan.step_seconds;
}

/* What is split over machines waits for a slow network, what is split inside of each does not. */
static void networks_take_time(void **state)
{
    const struct tt_plan_ranks one = {8, 1}, two = {8, 2}, apart = {2, 2};
    const double fast = 1e12, slow = 3e8;
    size_t split_by_8, split_by_4;
    (void)state;
    double inside = step_over(one, TT_FULL_SHARD, slow, NULL);
    assert_true(step_over(two, TT_FULL_SHARD, fast, &split_by_8) < inside * 1.01);
    assert_true(step_over(two, TT_FULL_SHARD, slow, NULL) > inside * 2);
    assert_true(step_over(apart, TT_FULL_SHARD, slow, NULL) > step_over(two, TT_FULL_SHARD, slow, NULL) * 3);
    assert_true(step_over(two, TT_HYBRID_SHARD, slow, &split_by_4) <
                step_over(two, TT_FULL_SHARD, slow, NULL) / 2);
    assert_true(split_by_4 > split_by_8 * 19 / 10 && split_by_4 < split_by_8 * 21 / 10);
}

static struct tt_plan prefetching(bool lora, enum tt_prefetch backward, bool forward)
{
    struct tt_plan plan;
    struct tt_rank_config rank = rank_of("h200", TT_RECOMPUTE_NONE, 0);
    rank.model_options.train_base = !lora;
    rank.model_options.lora.enabled = lora;
    rank.backward_prefetch = backward;
    rank.forward_prefetch = forward;
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan), TT_OK);
    return plan;
}

/* BACKWARD_PRE hides gathers in backward and takes a second buffer; BACKWARD_POST hides the sums of gradients
 * alone; without a prefetch neither is hidden. That forward has left a second buffer changes nothing in
 * backward. LoRA's sums are one, at the end. */
static void prefetches_trade_memory_for_time(void **state)
{
    (void)state;
    for (int lora = 0; lora < 2; lora++) {
        struct tt_plan pre = prefetching(lora, TT_PREFETCH_PRE, true),
                       post = prefetching(lora, TT_PREFETCH_POST, false),
                       post_forward = prefetching(lora, TT_PREFETCH_POST, true),
                       none_alone = prefetching(lora, TT_PREFETCH_NONE, false),
                       none_forward = prefetching(lora, TT_PREFETCH_NONE, true);
        size_t one = none_alone.memory.peak[TT_PURPOSE_GATHER], two = pre.memory.peak[TT_PURPOSE_GATHER];
        assert_true(two > one * 3 / 2 && two <= 2 * one); /* beside the buffers LoRA's values stay gathered */
        assert_true(post.memory.peak[TT_PURPOSE_GATHER] == one);
        assert_true(post_forward.memory.peak[TT_PURPOSE_GATHER] == two);
        assert_true(none_forward.memory.peak[TT_PURPOSE_GATHER] == two);
        assert_true(pre.step_seconds < 0.99 * post_forward.step_seconds);
        assert_true(post_forward.step_seconds < 0.99 * post.step_seconds);
        assert_true(none_forward.step_seconds < 0.99 * none_alone.step_seconds);
        if (lora) {
            assert_true(fabs(post_forward.step_seconds / none_forward.step_seconds - 1) < 1e-9);
            assert_true(fabs(post.step_seconds / none_alone.step_seconds - 1) < 1e-9);
        } else {
            assert_true(post_forward.step_seconds < 0.99 * none_forward.step_seconds);
            assert_true(post.step_seconds < 0.99 * none_alone.step_seconds);
        }
    }
}

static void eighty_layers_in_a_second(void **state)
{
    struct tt_plan plan;
    struct tt_model_facts large;
    struct tt_rank_config rank = rank_of("h200", TT_RECOMPUTE_AUTO, (size_t)3 << 30);
    (void)state;
    assert_int_equal(test_facts(large_text, &large), TT_OK);
    rank.model_facts = &large;
    double start = tt_clock_seconds();
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan), TT_OK);
    assert_true(tt_clock_seconds() - start < 10); /* a loaded machine with checks in every access */
}

/* Its attention is that of the whole row; a shorter one takes less time. */
static void a_window_beyond_the_row_changes_nothing(void **state)
{
    static struct tt_model_facts windowed;
    static const int64_t windows[] = {4096, 2048, 2049, 1024};
    struct tt_plan plan;
    struct tt_rank_config rank = rank_of("h200", TT_RECOMPUTE_NONE, 0);
    (void)state;
    make("h200", TT_RECOMPUTE_NONE, 0, &plan);
    double whole = plan.step_seconds;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        windowed = shape;
        for (int64_t l = 0; l < windowed.num_hidden_layers; l++) windowed.layers[l].window = windows[i];
        rank.model_facts = &windowed;
        assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan), TT_OK);
        assert_true(windows[i] >= batch.length ? plan.step_seconds == whole : plan.step_seconds < whole);
    }
}

/* Half as many heads of twice the width have the same products. */
static double seconds_of_width(const char *chip, int width)
{
    static struct tt_model_facts facts;
    struct tt_plan plan;
    struct tt_rank_config rank = rank_of(chip, TT_RECOMPUTE_NONE, 0);
    char text[512];
    (void)snprintf(text, sizeof text,
                   "{\"model_type\": \"llama\", \"hidden_size\": 1024, \"intermediate_size\": 3072, "
                   "\"num_hidden_layers\": 12, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                   "\"head_dim\": %d, \"vocab_size\": 4096, \"max_position_embeddings\": 4096, "
                   "\"rms_norm_eps\": 1e-5, \"dtype\": \"bfloat16\"}",
                   1024 / width, 512 / width, width);
    assert_int_equal(test_facts(text, &facts), TT_OK);
    rank.model_facts = &facts;
    assert_int_equal(tt_plan_make(&rank, (struct tt_plan_ranks){2, 1}, 1, &batch, &none, &plan), TT_OK);
    return plan.step_seconds;
}

/* Heads of more than 256 columns have kernels of their own, fast ones on Hopper alone. */
static void wide_heads_take_longer(void **state)
{
    (void)state;
    double hopper = seconds_of_width("h200", 512) / seconds_of_width("h200", 256);
    double other = seconds_of_width("a100-80gb", 512) / seconds_of_width("a100-80gb", 256);
    assert_true(hopper > 1.01 && hopper < 2);
    assert_true(other > 2 * hopper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_level_takes_less_and_longer),
        cmocka_unit_test(the_fastest_that_fits),
        cmocka_unit_test(what_waits_for_free_waits),
        cmocka_unit_test(memory_of_the_machine),
        cmocka_unit_test(processors_have_the_limit_of_their_machine),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(cpus_recompute_unless_told_what_they_may_take),
        cmocka_unit_test(a_gpu_keeps_something_free),
        cmocka_unit_test(time_adds_up),
        cmocka_unit_test(networks_take_time),
        cmocka_unit_test(prefetches_trade_memory_for_time),
        cmocka_unit_test(eighty_layers_in_a_second),
        cmocka_unit_test(a_window_beyond_the_row_changes_nothing),
        cmocka_unit_test(wide_heads_take_longer),
    };
    return cmocka_run_group_tests(tests, parse_shape, NULL);
}
