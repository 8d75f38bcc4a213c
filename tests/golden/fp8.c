/* Folders in FP8 (fp8/make_fp8.py): decoded, the loss of their numbers is that of the libraries, whatever the scales
 * are of, on any number of ranks. Blocks are quantized anew by rows, which the reference does too. With products in FP8
 * the loss stays near, and an adapter trains. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "support/train_run.h"

#define FOLDER TT_TEST_ROOT "/golden/fp8/"

static const char *const names[] = {"channel", "tensor", "mistral", "blocks", "powers"};
enum { NAMES = sizeof names / sizeof *names, FIRST_BLOCKS = 3 };

/* The losses of `steps` steps over all rows, with an adapter that begins with zeros. */
static void train(const char *name, const char *more, double *losses, int steps)
{
    char model[512];
    struct test_words words = {0};
    struct tt_train_summary summary;
    char *output = test_folder_create();
    (void)snprintf(model, sizeof model, FOLDER "%s", name);
    test_words_pair(&words, "model_name_or_path", model);
    test_words_pair(&words, "dataset_name", FOLDER "train.jsonl");
    test_words_add(&words,
                   "use_peft true lora_r 4 lora_target_modules all-linear learning_rate 0.02 logging_steps 1 "
                   "lr_scheduler_type constant save_strategy no");
    test_words_add(&words, more);
    test_train_ok(words.list, output, &summary);
    assert_int_equal(test_read_log(output, "loss", losses, steps), steps);
    test_folder_remove(output);
}

static double reference(const char *name, const char *of)
{
    struct tt_json json = {0};
    assert_int_equal(tt_json_read(FOLDER "losses.json", 1 << 16, &json), TT_OK);
    double loss = tt_json_number(tt_json_get(tt_json_get(json.root, name), of));
    tt_json_deinit(&json);
    assert_true(loss > 1);
    return loss;
}

static void decoded_numbers_are_those_of_the_folder(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        double loss, want = reference(names[i], i < FIRST_BLOCKS ? "stored" : "rows");
        train(names[i], "fp8_products none bf16 false max_steps 1 per_device_train_batch_size 3", &loss, 1);
        if (fabs(loss - want) > 2e-6 * want) fail_msg("%s: %.8f, not %.8f", names[i], loss, want);
        train(names[i], "fp8_products none bf16 false max_steps 1 per_device_train_batch_size 1 ranks 3",
              &loss, 1);
        if (fabs(loss - want) > 2e-6 * want) fail_msg("%s on ranks: %.8f, not %.8f", names[i], loss, want);
    }
}

static void products_in_fp8_train(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        double losses[8], stored = reference(names[i], "stored");
        train(names[i], "max_steps 8 per_device_train_batch_size 3", losses, 8);
        print_message("%s: %.4f, stored %.4f, after 8 steps %.4f\n", names[i], losses[0], stored, losses[7]);
        if (!(fabs(losses[0] - stored) < 0.03 * stored && losses[0] != stored))
            fail_msg("%s: %g, not near %g", names[i], losses[0], stored);
        if (!(losses[7] < losses[0] - 0.1)) fail_msg("%s: %g after %g", names[i], losses[7], losses[0]);
    }
}

/* A copy made while training has the bits of the stored one, which comes from the same numbers. Not those of blocks,
 * where the stored copy comes from the numbers before they were quantized by rows. */
static void one_copy_trains_as_two(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        double two[8], one[8];
        const char *more = "max_steps 8 per_device_train_batch_size 1 ranks 2";
        char single[128];
        (void)snprintf(single, sizeof single, "%s fp8_products single", more);
        train(names[i], more, two, 8);
        train(names[i], single, one, 8);
        bool same = memcmp(one, two, sizeof one) == 0;
        if (same != (i < FIRST_BLOCKS)) fail_msg("%s: %.8f and %.8f", names[i], one[7], two[7]);
        assert_true(one[0] == two[0]); /* forward has the same codes */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoded_numbers_are_those_of_the_folder),
        cmocka_unit_test(products_in_fp8_train),
        cmocka_unit_test(one_copy_trains_as_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
