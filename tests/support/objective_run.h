/* The scene of objectives' tests: a small decoder with random data, planned, loaded and trained step by step on any
 * split. */
#ifndef TT_TESTS_SUPPORT_OBJECTIVE_RUN_H
#define TT_TESTS_SUPPORT_OBJECTIVE_RUN_H

#include "engine/feed_rows.h"
#include "engine/plan.h"
#include "engine/step.h"

enum { TEST_SAMPLES = 12, TEST_LENGTH = 24, TEST_STEPS = 4, TEST_STEP_UNITS = 4 };

struct test_run {
    struct tt_model_facts model;
    struct tt_dataset *dataset;
    struct tt_sampler *sampler;
    struct tt_comm *comm;
    struct tt_plan plan;
    struct tt_rank rank;
    struct tt_gradient_watch watch;
};

/* A new adapter on all linears, with dropout. */
struct tt_model_options test_lora(tt_dtype dtype);

/* Zeroed members have defaults. */
struct test_setup {
    const struct tt_objective *objective;
    struct tt_model_options options;
    size_t group_size;
    int64_t accumulation;
    struct tt_comm *comm;                             /* lent, with its ranks; NULL: one rank */
    tt_status (*prepare)(struct tt_dataset *dataset); /* NULL, or changes the data before it is sampled */
    const struct tt_attached_ops *const *attached;    /* as of struct tt_rank_config */
    bool evaluates;                                   /* the rank does not train */
};

/* Close it also when opening fails. */
tt_status test_open_run(struct test_run *run, const struct test_setup *setup);
void test_close_run(struct test_run *run);
tt_status test_train_step(struct test_run *run, int64_t index, struct tt_train_step_result *result);

#endif
