/* training_state.json: the sums since the last log row come back by the names of the objective's metrics, also from
 * states that had them among the counters. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "run/memory.h"
#include "run/resume.h"

static void read_state(const char *window, const char *among_counters, struct tt_memory *memory)
{
    static char folder[] = "checkpoint-1";
    struct tt_objective objective;
    struct tt_resume resume = {.folder = folder};
    struct tt_str text = {0};
    tt_status status =
        tt_str_printf(&text,
                      "{%s \"counters\": {%s \"loss_sum\": 9.5, \"window_steps\": 3, \"steps_done\": 4, "
                      "\"tokens\": 5, \"supervised_tokens\": 6, \"samples\": 7}, \"gradient_watch\": "
                      "{\"seen\": \"\", \"silent\": \"\"}, \"best\": null}",
                      window, among_counters);
    *memory = (struct tt_memory){0};
    assert_int_equal(status, TT_OK);
    assert_int_equal(tt_objective_init("sft", &objective), TT_OK);
    assert_int_equal(tt_json_parse(text.data, text.bytes, "training_state.json", &resume.state), TT_OK);
    if (tt_resume_restore(&resume, &objective, memory) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_true(memory->counters.loss_sum == 9.5);
    tt_json_deinit(&resume.state);
    tt_str_deinit(&text);
}

static void the_window_is_by_names(void **state)
{
    (void)state;
    struct tt_memory memory;
    read_state("\"window\": {\"mean_token_accuracy\": 0.5, \"loss\": 2.25, \"entropy\": 1.5, \"other\": 7},",
               "", &memory);
    assert_true(memory.counters.window[0] ==
                2.25); /* in the order of the objective: loss, entropy, accuracy */
    assert_true(memory.counters.window[1] == 1.5);
    assert_true(memory.counters.window[2] == 0.5);
    assert_true(memory.counters.window[3] == 0);
}

static void older_states_have_it_among_the_counters(void **state)
{
    (void)state;
    struct tt_memory memory;
    read_state("", "\"window_loss\": 2.25, \"window_accuracy\": 0.5, \"window_entropy\": 1.5,", &memory);
    assert_true(memory.counters.window[0] == 2.25);
    assert_true(memory.counters.window[1] == 1.5);
    assert_true(memory.counters.window[2] == 0.5);
    read_state("", "\"window_loss\": null,", &memory);
    assert_true(memory.counters.window[0] == 0);
}

/* The best metric of a run whose evaluations were all NaN is infinite, which JSON has no number for. */
static void the_best_metric_may_be_infinite(void **state)
{
    (void)state;
    struct tt_memory memory;
    read_state("\"window\": {}, \"patience\": {\"metric\": \"inf\", \"waited\": 2},", "", &memory);
    assert_true(memory.patience.known && isinf(memory.patience.metric) && memory.patience.metric > 0);
    assert_int_equal(memory.patience.waited, 2);
    read_state("\"window\": {}, \"patience\": {\"metric\": \"-inf\", \"waited\": 0},", "", &memory);
    assert_true(isinf(memory.patience.metric) && memory.patience.metric < 0);
    read_state("\"window\": {}, \"patience\": {\"metric\": 1.5, \"waited\": 1},", "", &memory);
    assert_true(memory.patience.metric == 1.5);
    read_state("\"window\": {},", "", &memory);
    assert_false(memory.patience.known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_window_is_by_names),
        cmocka_unit_test(older_states_have_it_among_the_counters),
        cmocka_unit_test(the_best_metric_may_be_infinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
