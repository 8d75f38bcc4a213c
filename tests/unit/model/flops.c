/* tt_model_flops_per_token: attention counts the pairs of a query and a key that it sees. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "support/model_facts.h"
#include "support/must.h"

enum { LAYERS = 2, LENGTH = 512, WIDTH = 4 * 8 };

/* FLOPs of a token of a full training of Mistral's layers with this sliding_window, "null" for none. */
static double flops(const char *window)
{
    static struct tt_model_facts facts;
    char text[512];
    struct tt_model *model = NULL;
    const struct tt_model_options options = {.compute_dtype = TT_F32, .train_base = true};
    (void)snprintf(text, sizeof text,
                   "{\"model_type\": \"mistral\", \"vocab_size\": 61, \"hidden_size\": 32, "
                   "\"intermediate_size\": 48, \"num_hidden_layers\": %d, \"num_attention_heads\": 4, "
                   "\"num_key_value_heads\": 2, \"head_dim\": 8, \"max_position_embeddings\": 8192, "
                   "\"sliding_window\": %s}",
                   LAYERS, window);
    test_must(test_facts(text, &facts));
    test_must(tt_model_create(&facts, &options, &model));
    double each = tt_model_flops_per_token(model, LENGTH, true);
    tt_model_destroy(model);
    return each;
}

/* Of a query to all keys up to its own in a row of LENGTH tokens, by counting; 0: no window. */
static double keys_of(int window)
{
    double pairs = 0;
    for (int q = 0; q < LENGTH; q++)
        for (int k = 0; k <= q; k++) pairs += window == 0 || k > q - window;
    return pairs / LENGTH;
}

static void a_window_beyond_the_row_is_none(void **state)
{
    (void)state;
    double whole = flops("null");
    assert_true(flops("4096") == whole);
    assert_true(flops("512") == whole);
    assert_true(flops("513") == whole);
    assert_true(flops("511") < whole && flops("511") > 0.999 * whole);
}

static void a_window_counts_what_it_shows(void **state)
{
    (void)state;
    double whole = flops("null"), of_a_key = 12.0 * WIDTH * LAYERS;
    static const struct {
        int window;
        const char *text;
    } cases[] = {{1, "1"}, {16, "16"}, {256, "256"}, {500, "500"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double fewer = (whole - flops(cases[i].text)) / of_a_key,
               wanted = keys_of(0) - keys_of(cases[i].window);
        if (fabs(fewer - wanted) > 1)
            fail_msg("window %d: %g keys fewer, not %g", cases[i].window, fewer, wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_beyond_the_row_is_none),
        cmocka_unit_test(a_window_counts_what_it_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
