/* The levels of blocks that differ, layers (support/mixed_model.h) and those of a detector, against all combinations of
 * levels: whatever the limit, the plan's step is hardly longer than the best of them, and no longer than with the first
 * blocks one level higher than the others. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "engine/plan_impl.h"
#include "model/retinanet.h"
#include "support/mixed_model.h"
#include "support/model_facts.h"
#include "support/must.h"

enum { LIMITS = 40, COMBINATIONS_MAX = 256 };

static const struct tt_batch_limits none;

struct point {
    size_t bytes;
    double seconds;
    bool firsts; /* the first blocks are at one level, the others at the one below */
};

/* A model on a chip, and all combinations of levels that its blocks have, but for inputs in host memory. */
struct scene {
    struct tt_model_facts facts;
    struct tt_rank_config rank;
    struct tt_batch_limits batch;
    struct tt_objective objective; /* empty: sft */
    const char *targets, *layers;  /* of LoRA; NULL: all weights train, all layers */
    struct tt_plan plan;
    struct point points[COMBINATIONS_MAX];
    int combinations;
};

static void set_rank(struct scene *scene)
{
    scene->rank = (struct tt_rank_config){
        .device = {.kind = "plan", .stands_for = "h200", .threads = 1},
        .strategy = TT_FULL_SHARD,
        .model_facts = &scene->facts,
        .model_options = {.compute_dtype = TT_BF16,
                          .random_init = true,
                          .train_base = scene->targets == NULL},
        .objective = scene->objective.ops != NULL ? &scene->objective : NULL,
        .limits = scene->batch,
        .train = true,
        .recompute = TT_RECOMPUTE_AUTO,
        .backward_prefetch = TT_PREFETCH_PRE,
        .forward_prefetch = true,
        .reduce_dtype = TT_F32,
    };
    if (scene->targets != NULL)
        scene->rank.model_options.lora = (struct tt_lora_config){.enabled = true,
                                                                 .r = 8,
                                                                 .alpha = 16,
                                                                 .target_modules = scene->targets,
                                                                 .layers_to_transform = scene->layers};
}

static void make(struct scene *scene, size_t limit)
{
    scene->rank.device.memory_limit = limit;
    test_must(
        tt_plan_make(&scene->rank, (struct tt_plan_ranks){1, 1}, 1, &scene->batch, &none, &scene->plan));
}

/* The level number `at` of a block; at least TT_RECOMPUTE_OFFLOAD: it has fewer. */
static int nth_level(const struct tt_plan *plan, int block, int at)
{
    int level = 0;
    for (; level < TT_RECOMPUTE_OFFLOAD; level++)
        if ((plan->choices[block] & TT_LEVEL_BIT(level)) != 0 && at-- == 0) break;
    return level;
}

static int level_count(const struct tt_plan *plan, int block)
{
    int count = 0;
    while (nth_level(plan, block, count) < TT_RECOMPUTE_OFFLOAD) count++;
    return count;
}

/* Sets the levels of combination `number`; returns whether it is one of the first blocks. */
static bool set_combination(struct tt_plan *plan, int number)
{
    bool firsts = true;
    int before = -1, highest = -1;
    for (int b = 0; b < plan->block_count; b++) {
        int count = level_count(plan, b), at = number % count;
        plan->levels[b] = (enum tt_level)nth_level(plan, b, at);
        number /= count;
        if (count == 1) continue;
        if (highest < 0) highest = before = at;
        firsts = firsts && at <= before && highest - at <= 1;
        before = at;
    }
    return firsts;
}

static void run_combinations(struct scene *scene)
{
    struct tt_plan_attempt attempt = {
        .rank = scene->rank, .ranks = {1, 1}, .micro_steps = 1, .train = scene->batch};
    scene->combinations = 1;
    for (int b = 0; b < scene->plan.block_count; b++) scene->combinations *= level_count(&scene->plan, b);
    assert_true(scene->combinations > 16 && scene->combinations <= COMBINATIONS_MAX);
    for (int i = 0; i < scene->combinations; i++) {
        struct point *point = &scene->points[i];
        point->firsts = set_combination(&scene->plan, i);
        test_must(tt_plan_run(&attempt, &scene->plan));
        point->bytes = scene->plan.memory.total_peak;
        point->seconds = scene->plan.step_seconds;
    }
}

/* The shortest step that fits: of all combinations, or of those of the first blocks. */
static double best_of(const struct scene *scene, size_t limit, bool firsts)
{
    double best = HUGE_VAL;
    for (int i = 0; i < scene->combinations; i++) {
        const struct point *point = &scene->points[i];
        if (point->bytes <= limit && (point->firsts || !firsts)) best = fmin(best, point->seconds);
    }
    return best;
}

/* Returns the limits with which the plan is faster than with the first blocks. */
static int check_limits(struct scene *scene, double excess)
{
    int faster = 0;
    set_rank(scene);
    make(scene, 0);
    run_combinations(scene);
    size_t high = scene->points[0].bytes, low = scene->points[scene->combinations - 1].bytes;
    assert_true(high > low);
    for (size_t l = 0; l < LIMITS; l++) {
        size_t limit = high - (high - low) * l / LIMITS;
        make(scene, limit);
        double seconds = scene->plan.step_seconds, firsts = best_of(scene, limit, true);
        assert_true(scene->plan.fits && scene->plan.memory.total_peak <= limit);
        assert_true(seconds <= excess * best_of(scene, limit, false));
        assert_true(seconds <= firsts * (1 + 1e-9));
        faster += seconds < 0.999 * firsts;
    }
    return faster;
}

/* Nothing above the only layer with an adapter is cheap to recompute: the way to recomputation is one step. */
static void layers_of_other_halves(void **state)
{
    static const struct mixed_size size = {.vocab = 4096, .dim = 1024, .ffn = 3072, .heads = 8};
    static const char *const targets[] = {NULL, "all-linear", "[\"q_proj\"]"};
    static const char *const layers[] = {NULL, NULL, "[0]"};
    static struct scene scene;
    (void)state;
    for (int i = 0; i < 3; i++) {
        scene = (struct scene){.batch = {.tokens = 8192, .sequences = 4, .rows = 8192, .length = 2048},
                               .targets = targets[i],
                               .layers = layers[i]};
        test_must(mixed_facts(&size, &scene.facts));
        assert_true(check_limits(&scene, 1.005) > LIMITS / 4);
    }
}

static void blocks_of_a_detector(void **state)
{
    static struct scene scene = {.batch = {.images = 8, .boxes = 64, .height = 512, .width = 512}};
    struct tt_retinanet_config config = tt_retinanet_config_default(80);
    (void)state;
    test_must(tt_retinanet_facts(&config, &scene.facts));
    test_must(tt_objective_init("detection", &scene.objective));
    (void)check_limits(&scene, 1.03); /* its first blocks have the largest features: they win the most too */
}

/* The share of what the blocks with a choice keep that recomputation leaves. */
static double left_of(struct scene *scene)
{
    struct tt_plan_attempt attempt = {
        .rank = scene->rank, .ranks = {1, 1}, .micro_steps = 1, .train = scene->batch};
    double kept[TT_LEVEL_COUNT] = {0};
    attempt.rank.device.kind = "plan";
    for (int level = TT_KEEP_CHEAP; level <= TT_RECOMPUTE_BLOCK; level++) {
        struct tt_plan_counts counts = {.at = {NULL}};
        test_must(tt_plan_count_level(&attempt, (enum tt_level)level, &scene->plan, &counts));
        for (int b = 0; b < scene->plan.block_count; b++)
            if (tt_plan_chooses(&scene->plan, b)) kept[level] += (double)counts.at[level][b].kept;
        tt_plan_counts_deinit(&counts);
    }
    assert_true(kept[TT_KEEP_CHEAP] > 0);
    return kept[TT_RECOMPUTE_BLOCK] / kept[TT_KEEP_CHEAP];
}

/* On processors without a limit blocks are recomputed where that leaves a quarter of what they keep, whatever the model
 * is called; with a limit the plan chooses among all levels. */
static void memory_that_is_shared(void **state)
{
    static struct scene layers = {.batch = {.tokens = 512, .sequences = 1, .rows = 512, .length = 512}},
                        detector = {.batch = {.images = 2, .boxes = 64, .height = 512, .width = 512}};
    struct tt_retinanet_config config = tt_retinanet_config_default(80);
    struct scene *const scenes[] = {&layers, &detector};
    static const enum tt_level shared[] = {TT_RECOMPUTE_BLOCK, TT_KEEP_CHEAP};
    (void)state;
    test_must(mixed_facts(NULL, &layers.facts));
    test_must(tt_retinanet_facts(&config, &detector.facts));
    test_must(tt_objective_init("detection", &detector.objective));
    for (int i = 0; i < 2; i++) {
        struct tt_plan *plan = &scenes[i]->plan;
        int choosing = 0;
        set_rank(scenes[i]);
        scenes[i]->rank.device.stands_for = "cpu";
        make(scenes[i], 0);
        assert_true((left_of(scenes[i]) <= 0.25) == (shared[i] == TT_RECOMPUTE_BLOCK));
        make(scenes[i], 0);
        for (int b = 0; b < plan->block_count; b++) {
            if (tt_plan_chooses(plan, b)) assert_int_equal(plan->levels[b], shared[i]);
            choosing += tt_plan_chooses(plan, b);
        }
        assert_true(choosing >= 4);
        double seconds = plan->step_seconds;
        make(scenes[i], plan->memory.total_peak);
        assert_true(plan->fits && plan->step_seconds <= seconds);
        make(scenes[i], (size_t)64 << 30);
        for (int b = 0; b < plan->block_count; b++)
            assert_int_equal(plan->levels[b], tt_level_among(plan->choices[b], TT_KEEP_ALL));
    }
}

/* The adapter is in the first of few layers, whose backward needs the most: there the places of inputs on their way to
 * the host take more than the inputs do. */
static void recomputation_can_be_leaner_than_the_host(void **state)
{
    static struct scene scene = {.batch = {.tokens = 64, .sequences = 1, .rows = 64, .length = 64},
                                 .targets = "[\"q_proj\"]",
                                 .layers = "[0]"};
    struct tt_plan plans[2];
    (void)state;
    test_must(test_facts("{\"model_type\": \"llama\", \"vocab_size\": 400, \"hidden_size\": 64, "
                         "\"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                         "\"num_key_value_heads\": 2, \"max_position_embeddings\": 64, "
                         "\"rms_norm_eps\": 1e-5}",
                         &scene.facts));
    set_rank(&scene);
    for (int i = 0; i < 2; i++) {
        scene.rank.recompute = i == 0 ? TT_RECOMPUTE_EVERY_BLOCK : TT_RECOMPUTE_EVERY_OFFLOAD;
        make(&scene, 0);
        plans[i] = scene.plan;
    }
    assert_true(plans[0].memory.total_peak < plans[1].memory.total_peak);
    scene.rank.recompute = TT_RECOMPUTE_AUTO;
    for (size_t less = 0; less < 2; less++) { /* the second limit is too low for any levels */
        make(&scene, plans[0].memory.total_peak - less);
        assert_true(scene.plan.fits == (less == 0));
        assert_int_equal(scene.plan.memory.total_peak, plans[0].memory.total_peak);
        assert_memory_equal(scene.plan.levels, plans[0].levels, sizeof scene.plan.levels);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_other_halves),
        cmocka_unit_test(blocks_of_a_detector),
        cmocka_unit_test(memory_that_is_shared),
        cmocka_unit_test(recomputation_can_be_leaner_than_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
