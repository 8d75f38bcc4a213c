/* Which name a misspelt one may be meant to be (base/str.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/str.h"

static void names_that_may_be_meant(void **state)
{
    static const struct {
        const char *known, *name;
        bool near;
    } cases[] = {
        {"learning_rate", "learing_rate", true},
        {"sharding_strategy", "shard_strategy", true},
        {"num_processes", "num_proceses", true},
        {"max_steps", "max_step", true},
        {"fsdp_offload_params", "fsdp_use_orig_params", false}, /* much in common, and nothing alike */
        {"dataset_test_split", "dataset_kwargs_x", false},
        {"seed", "warmup", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int distance;
        if (tt_name_is_near(cases[i].known, cases[i].name, &distance) != cases[i].near)
            fail_msg("%s for %s", cases[i].known, cases[i].name);
        assert_int_equal(distance, tt_edit_distance(cases[i].known, cases[i].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_that_may_be_meant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
