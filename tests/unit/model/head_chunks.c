/* The head works in chunks of rows: with a vocabulary that makes several, loss and gradients are those of the
 * parts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "nn/head.h"
#include "support/model_facts.h"
#include "support/model_runner.h"

enum { VOCAB = 120011, TOKENS = 300 };

static struct tt_model_runner *make(void)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 120011, \"hidden_size\": 8, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
        "\"max_position_embeddings\": 1024, \"rms_norm_eps\": 1e-5}";
    struct tt_model_facts facts;
    assert_int_equal(test_facts(text, &facts), TT_OK);
    assert_int_equal(facts.vocab_size, VOCAB);
    struct tt_model_options options = {.compute_dtype = TT_F32,
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

static void chunks_add_up(void **state)
{
    (void)state;
    static int32_t ids[TOKENS], labels[TOKENS];
    struct tt_model_runner *whole = make(), *parts = make();
    int64_t length = TOKENS;
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 7919) % VOCAB;
        labels[t] = (t * 104729) % VOCAB;
    }
    assert_true(tt_head_chunk_rows(VOCAB, TT_F32, true) * 2 < TOKENS); /* three chunks, the last one short */
    tt_runner_set_batch(whole, ids, &length, 1, labels);
    double loss = tt_runner_loss(whole, true), sum = 0;
    for (int first = 0; first < TOKENS; first += 100) {
        int32_t some[TOKENS];
        for (int t = 0; t < TOKENS; t++) some[t] = t >= first && t < first + 100 ? labels[t] : -100;
        tt_runner_set_batch(parts, ids, &length, 1, some);
        sum += tt_runner_loss(parts, true);
    }
    assert_true(fabs(loss - sum) < 1e-5 * loss);
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
    tt_runner_destroy(parts);
    tt_runner_destroy(whole);
}

static void a_chunk_is_bounded(void **state)
{
    (void)state;
    static const int64_t vocabs[] = {1, 257, 32000, 151936, 1 << 24};
    for (int i = 0; i < 5; i++) {
        int64_t rows = tt_head_chunk_rows(vocabs[i], TT_F32, true);
        assert_true(rows >= 1);
        assert_true(rows == 1 || rows * vocabs[i] * 4 <= TT_HEAD_CHUNK_BYTES_HOST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_add_up), cmocka_unit_test(a_chunk_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
