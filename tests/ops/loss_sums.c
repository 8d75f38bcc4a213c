#include <math.h>
#include <stdlib.h>

#include "backend/ops/cross_entropy.h"
#include "ops/isa.h"

/* Onto what is there; without `correct` and `entropy` their sums stay. The same bits whenever it is done
 * again. */
static void check_count(struct test_device *device, int64_t count, bool with_others, double first[3],
                        bool again)
{
    struct test_tensor loss = test_tensor_random(TT_F32, count, TEST_UNUSED, TEST_UNUSED, 0, 3, 2);
    struct test_tensor correct = test_tensor_make(TT_I32, count, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor entropy = test_tensor_random(TT_F32, count, TEST_UNUSED, TEST_UNUSED, 0, 5, 2);
    struct test_tensor sums = test_tensor_make(TT_F64, 3, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&correct, 4, 2);
    test_tensor_set(&sums, (const double[]){0.5, 7, 0.25});
    double *losses = test_tensor_values(&loss), *hits = test_tensor_values(&correct);
    double *entropies = test_tensor_values(&entropy);
    TEST_TO_DEVICE(device, &loss, &correct, &entropy, &sums);
    struct tt_loss_sums_args args = {.loss_N = loss.view, .sums = sums.view};
    if (with_others) args.correct_N = correct.view, args.entropy_N = entropy.view;
    test_ok(tt_loss_sums(device->stream, &args));
    TEST_TO_HOST(device, &loss, &correct, &entropy, &sums);
    double *got = test_tensor_values(&sums), total = 0.5, hit_total = 7, size = 0.5, entropy_total = 0.25;
    for (int64_t n = 0; n < count; n++) {
        total += losses[n];
        size += fabs(losses[n]) + fabs(entropies[n]);
        if (with_others) hit_total += hits[n], entropy_total += entropies[n];
    }
    assert_true(fabs(got[0] - total) <= 1e-14 * size);
    assert_true(got[1] == hit_total);
    assert_true(fabs(got[2] - entropy_total) <= 1e-14 * size);
    for (int i = 0; i < 3; i++) {
        if (again) assert_true(got[i] == first[i]);
        first[i] = got[i];
    }
    test_tensor_check_gaps("sums", &sums);
    test_tensor_check_gaps("loss", &loss);
    free(losses), free(hits), free(entropies), free(got);
    test_tensor_free(&loss);
    test_tensor_free(&correct);
    test_tensor_free(&entropy);
    test_tensor_free(&sums);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    static const int64_t counts[] = {0, 1, 33, 1024, 1025, 5000, 40000};
    double(*first)[3] = context;
    for (int i = 0; i < 14; i++) check_count(device, counts[i / 2], i % 2 == 0, first[i], threads > 1);
}

static void losses_are_summed_in_double(void **state)
{
    (void)state;
    double first[14][3];
    test_on_each_isa(check_run, first);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct test_device device;
    float loss[3];
    int32_t correct[2];
    double sums[4];
    test_device_open(&device, "cpu", 1);
    struct tt_loss_sums_args args = {.loss_N = tt_tensor_1d(loss, TT_F32, 3),
                                     .correct_N = tt_tensor_1d(correct, TT_I32, 2),
                                     .sums = tt_tensor_1d(sums, TT_F64, 2)};
    test_refused(tt_loss_sums(device.stream, &args), TT_ERR_INTERNAL, "must have the shape of loss");
    args.correct_N = (tt_tensor){0};
    args.entropy_N = tt_tensor_1d(loss, TT_F32, 2);
    test_refused(tt_loss_sums(device.stream, &args), TT_ERR_INTERNAL, "must have the shape of loss");
    args.entropy_N = (tt_tensor){0};
    args.sums = tt_tensor_1d(sums, TT_F64, 4);
    test_refused(tt_loss_sums(device.stream, &args), TT_ERR_INTERNAL, "but must be F64[3]");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_summed_in_double),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
