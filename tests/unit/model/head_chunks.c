/* The head works in chunks of rows: with a vocabulary that makes several, loss and gradients are those of the
 * parts. Each row's gradient may have its own scale, known before forward or only after it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "nn/head.h"
#include "support/model_facts.h"
#include "support/model_runner.h"

enum { VOCAB = 120011, TOKENS = 300, SOME = 150 };

static struct tt_model_runner *make(tt_dtype dtype)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 120011, \"hidden_size\": 8, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
        "\"max_position_embeddings\": 1024, \"rms_norm_eps\": 1e-5}";
    struct tt_model_facts facts;
    assert_int_equal(test_facts(text, &facts), TT_OK);
    assert_int_equal(facts.vocab_size, VOCAB);
    struct tt_model_options options = {.compute_dtype = dtype,
                                       .lora = {.enabled = true,
                                                .r = 2,
                                                .alpha = 2,
                                                .target_modules = "[\"lm_head\", \"up_proj\"]",
                                                .dropout = 0.2}};
    struct tt_model_runner *runner = tt_runner_create(&facts, &options);
    tt_runner_fill(runner, 3, 0.3);
    runner->pass.in.training = true;
    runner->pass.in.loss_scale = 1.0f / TOKENS;
    return runner;
}

/* Only the rows first .. end - 1 have a label. */
static void set_rows(struct tt_model_runner *runner, int first, int end)
{
    int32_t ids[TOKENS], labels[TOKENS];
    int64_t length = TOKENS;
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 7919) % VOCAB;
        labels[t] = t >= first && t < end ? (t * 104729) % VOCAB : -100;
    }
    tt_runner_set_batch(runner, ids, &length, 1, labels);
}

static void check_close(const struct tt_model_runner *whole, const struct tt_model_runner *parts)
{
    for (size_t i = 0; i < whole->model->param_count; i++) {
        const tt_param *a = whole->model->params[i], *b = parts->model->params[i];
        double difference = 0, norm = 0;
        if (!a->trainable) continue;
        for (int64_t e = 0; e < tt_param_count(a); e++) {
            double x = ((float *)a->grad.data)[e], y = ((float *)b->grad.data)[e];
            difference += (x - y) * (x - y);
            norm += x * x;
        }
        assert_true(norm > 0 && sqrt(difference / norm) < 1e-4);
    }
}

static void chunks_add_up(void **state)
{
    (void)state;
    struct tt_model_runner *whole = make(TT_F32), *parts = make(TT_F32);
    assert_true(tt_head_chunk_rows(VOCAB, TT_F32, true) * 2 < TOKENS); /* three chunks, the last one short */
    set_rows(whole, 0, TOKENS);
    double loss = tt_runner_loss(whole, true), sum = 0;
    for (int first = 0; first < TOKENS; first += 100) {
        set_rows(parts, first, first + 100);
        sum += tt_runner_loss(parts, true);
    }
    assert_true(fabs(loss - sum) < 1e-5 * loss);
    check_close(whole, parts);
    tt_runner_destroy(parts);
    tt_runner_destroy(whole);
}

static void check_same_bits(const struct tt_model_runner *a, const struct tt_model_runner *b)
{
    for (size_t i = 0; i < a->model->param_count; i++) {
        const tt_param *x = a->model->params[i], *y = b->model->params[i];
        if (x->trainable) assert_memory_equal(x->grad.data, y->grad.data, tt_tensor_bytes(x->grad));
    }
}

/* One pass with one scale for all is the reference: a scale for each row, and a second pass over the logits, must
 * give the same bits when all scales are alike. */
static void scales_that_are_alike_change_no_bit(void **state)
{
    (void)state;
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16};
    float scales[SOME];
    for (int n = 0; n < SOME; n++) scales[n] = 1.0f / TOKENS;
    assert_true(tt_head_chunk_rows(VOCAB, TT_F32, true) < SOME);
    for (int d = 0; d < 2; d++) {
        struct tt_model_runner *one = make(dtypes[d]);
        set_rows(one, 0, SOME);
        double loss = tt_runner_loss(one, true);
        for (int follow = 0; follow < 2; follow++) {
            struct tt_model_runner *other = make(dtypes[d]);
            set_rows(other, 0, SOME);
            other->pass.in.scale_N = tt_tensor_1d(scales, TT_F32, SOME);
            other->pass.in.scales_follow = follow;
            assert_true(tt_runner_loss(other, true) == loss);
            check_same_bits(one, other);
            tt_runner_destroy(other);
        }
        tt_runner_destroy(one);
    }
}

/* Three parts of the rows, each with its own scale. */
static void each_row_has_its_own_scale(void **state)
{
    (void)state;
    static const float part_scales[] = {0.25f, -0.5f, 0.0f};
    float scales[TOKENS];
    for (int t = 0; t < TOKENS; t++) scales[t] = part_scales[t / 100];
    struct tt_model_runner *whole = make(TT_F32), *again = make(TT_F32), *parts = make(TT_F32);
    set_rows(whole, 0, TOKENS);
    set_rows(again, 0, TOKENS);
    whole->pass.in.scale_N = again->pass.in.scale_N = tt_tensor_1d(scales, TT_F32, TOKENS);
    again->pass.in.scales_follow = true;
    tt_runner_loss(whole, true);
    tt_runner_loss(again, true);
    check_same_bits(whole, again);
    for (int part = 0; part < 3; part++) {
        set_rows(parts, part * 100, part * 100 + 100);
        parts->pass.in.loss_scale = part_scales[part];
        tt_runner_loss(parts, true);
    }
    check_close(whole, parts);
    tt_runner_destroy(parts);
    tt_runner_destroy(again);
    tt_runner_destroy(whole);
}

/* With adapters off the model is the base: as with a B of zeros, where the adapters add nothing. */
static void adapters_can_be_off(void **state)
{
    (void)state;
    struct tt_model_runner *on = make(TT_F32), *off = make(TT_F32), *zero = make(TT_F32);
    struct tt_model_runner *all[] = {on, off, zero};
    double losses[3];
    for (size_t i = 0; i < zero->model->param_count; i++) {
        const tt_param *param = zero->model->params[i];
        if (strstr(param->name, ".lora_B.") != NULL)
            memset(param->value.data, 0, tt_tensor_bytes(param->value));
    }
    off->pass.in.adapters_off = true;
    for (int i = 0; i < 3; i++) {
        all[i]->pass.in.training = false;
        set_rows(all[i], 0, 20);
        losses[i] = tt_runner_loss(all[i], false);
    }
    assert_true(losses[1] == losses[2]);
    assert_true(losses[0] != losses[1]);
    for (int i = 0; i < 3; i++) tt_runner_destroy(all[i]);
}

static void a_chunk_is_bounded(void **state)
{
    (void)state;
    static const int64_t vocabs[] = {1, 257, 32000, 151936, 248320, 262144, 1 << 24};
    for (int i = 0; i < 7; i++) {
        int64_t rows = tt_head_chunk_rows(vocabs[i], TT_F32, true);
        assert_true(rows >= 1);
        assert_true(rows == 1 || rows * vocabs[i] * 4 <= TT_HEAD_CHUNK_MOST_HOST);
        assert_true(rows <= TT_HEAD_CHUNK_ROWS_HOST || rows * vocabs[i] * 4 <= TT_HEAD_CHUNK_BYTES_HOST);
    }
    for (int i = 3; i < 6; i++) { /* vocabularies of today's models */
        assert_int_equal(tt_head_chunk_rows(vocabs[i], TT_F32, true), TT_HEAD_CHUNK_ROWS_HOST);
        assert_int_equal(tt_head_chunk_rows(vocabs[i], TT_BF16, true),
                         vocabs[i] == 151936 ? 192 : TT_HEAD_CHUNK_ROWS_HOST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_add_up),
        cmocka_unit_test(a_chunk_is_bounded),
        cmocka_unit_test(scales_that_are_alike_change_no_bit),
        cmocka_unit_test(each_row_has_its_own_scale),
        cmocka_unit_test(adapters_can_be_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
