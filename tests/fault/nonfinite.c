/* Numbers that are none: a damaged weight is found by name, a training that blows up stops and says so, and
 * what was saved before stays. With one rank and two, fp32 and bf16, with and without gradient checkpointing.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "support/train_run.h"
#include "support/workplace.h"

#define ROWS TT_TEST_ROOT "/golden/llama2/train.jsonl"

static const char *const ways[] = {
    "ranks 1 bf16 false gradient_checkpointing false",
    "ranks 1 bf16 true gradient_checkpointing true",
    ("ranks 2 bf16 false gradient_checkpointing true per_device_train_batch_size 1 "
     "gradient_accumulation_steps 2"),
    "ranks 2 bf16 true gradient_checkpointing false sharding_strategy NO_SHARD",
};

/* Writes `value` over element `index` of a tensor of the model. */
static void damage(const struct test_workplace *place, const char *tensor, int64_t index, float value)
{
    char path[TEST_PATH_BYTES];
    struct tt_safetensors *file = NULL;
    struct tt_str bytes = {0};
    test_join(place->model, "model.safetensors", path);
    assert_int_equal(tt_safetensors_open(path, &file), TT_OK);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, tensor);
    if (entry == NULL) fail_msg("there is no '%s'", tensor);
    assert_int_equal(entry->dtype, TT_F32);
    uint64_t offset = entry->offset + (uint64_t)index * sizeof value;
    tt_safetensors_close(file);
    assert_int_equal(tt_file_read(path, 1 << 26, &bytes), TT_OK);
    memcpy(bytes.data + offset, &value, sizeof value);
    assert_int_equal(tt_file_write_atomic(path, bytes.data, bytes.bytes), TT_OK);
    tt_str_deinit(&bytes);
}

static tt_status train(const struct test_workplace *place, const char *way, const char *more,
                       char output[TEST_PATH_BYTES])
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", ROWS);
    test_words_pair(&words, "eval_dataset", ROWS);
    test_words_add(&words, "threads 1 max_steps 3 lora_r 2");
    test_words_add(&words, way);
    test_words_add(&words, more);
    test_workplace_path(place, "out", output);
    uint64_t live = tt_alloc_live();
    tt_status status = test_train(words.list, output, &summary);
    assert_int_equal(tt_alloc_live(), live);
    return status;
}

static void assert_says(const char *words, const char *what)
{
    char text[4096];
    tt_error_format(tt_error_last(), text, sizeof text);
    if (strstr(text, words) == NULL) fail_msg("%s: wanted '%s' in: %s", what, words, text);
}

static void damaged_weights_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        float value;
        const char *where;
    } cases[] = {
        {"model.layers.0.self_attn.q_proj.weight", NAN, "first appeared in the output of model.layers.0"},
        {"model.layers.1.mlp.down_proj.weight", NAN, "first appeared in the output of model.layers.1"},
        {"model.layers.1.input_layernorm.weight", INFINITY, "first appeared in the output of model.layers.1"},
        {"model.norm.weight", NAN, "first appeared in the loss"},
        {"lm_head.weight", NAN, "first appeared in the loss"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct test_workplace place;
        char output[TEST_PATH_BYTES];
        test_workplace_create("llama2", &place);
        damage(&place, cases[c].tensor, 3, cases[c].value);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            assert_int_equal(train(&place, ways[w], "", output), TT_ERR_DATA);
            assert_says("the loss of step 1 is", ways[w]);
            assert_says(cases[c].where, ways[w]);
            assert_int_equal(test_count_entries(output, "adapter"), 0);
            test_nothing_unfinished(output);
        }
        test_workplace_remove(&place);
    }
}

/* Row 5 of the embedding is met only where token 5 stands: on one rank, in one micro batch. */
static void damaged_token_is_named(void **state)
{
    (void)state;
    struct test_workplace place;
    char output[TEST_PATH_BYTES], data[TEST_PATH_BYTES], more[2 * TEST_PATH_BYTES + 200];
    test_workplace_create("llama2", &place);
    damage(&place, "model.embed_tokens.weight", 5 * 40 + 7, NAN);
    test_workplace_write(&place, "rows.jsonl",
                         "{\"input_ids\": [7, 8, 9]}\n{\"input_ids\": [7, 8, 9, 10]}\n"
                         "{\"input_ids\": [9, 8, 7]}\n{\"input_ids\": [7, 5, 9]}\n",
                         data);
    snprintf(more, sizeof more,
             "dataset_name '%s' eval_dataset '%s' train_sampling_strategy sequential "
             "per_device_train_batch_size 1 "
             "gradient_accumulation_steps 2",
             data, data);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        assert_int_equal(train(&place, ways[w], more, output), TT_ERR_DATA);
        assert_says("first appeared in the output of model.embed_tokens", ways[w]);
    }
    test_workplace_remove(&place);
}

/* The loss is a number, and what it sends back is none: opposite rows of the head, as large as floats are,
 * add up past all of them. One token is supervised, and column 7 of the hidden state is small: the logits
 * themselves are finite. */
static void damaged_gradient_is_named(void **state)
{
    (void)state;
    enum { LABEL = 9, COLUMN = 7, WIDTH = 40, VOCABULARY = 257 };
    char output[TEST_PATH_BYTES], data[TEST_PATH_BYTES], more[2 * TEST_PATH_BYTES + 200], text[4096];
    int named = 0;
    for (int sign = -1; sign <= 1; sign += 2) { /* one of them is the wrong way round, and the loss is 0 */
        struct test_workplace place;
        test_workplace_create("llama2", &place);
        damage(&place, "model.norm.weight", COLUMN, 0.05f);
        for (int v = 0; v < VOCABULARY; v++)
            damage(&place, "lm_head.weight", v * WIDTH + COLUMN, (float)(v == LABEL ? -sign : sign) * 3e38f);
        test_workplace_write(&place, "row.jsonl", "{\"input_ids\": [7, 9]}\n", data);
        snprintf(more, sizeof more, "dataset_name '%s' per_device_train_batch_size 1 max_steps 1", data);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w += 2) { /* those in fp32 */
            tt_status status = train(&place, ways[w], more, output);
            tt_error_format(tt_error_last(), text, sizeof text);
            if (status == TT_OK) continue;
            if (status != TT_ERR_DATA || strstr(text, "the gradient of 'model.layers.") == NULL ||
                strstr(text, "is not finite in step 1") == NULL)
                fail_msg("%s: %s", ways[w], text);
            assert_int_equal(test_count_entries(output, "adapter"), 0);
            named++;
        }
        test_workplace_remove(&place);
    }
    assert_int_equal(named, 2);
}

/* The step before was fine and is saved; then the learning rate has ruined the weights. */
static void exploding_training_stops(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct test_workplace place;
        char output[TEST_PATH_BYTES];
        double losses[4];
        test_workplace_create("llama2", &place);
        const char *more = "use_peft false learning_rate 1e19 max_grad_norm 0 save_steps 1 logging_steps 1 "
                           "lr_scheduler_type constant";
        assert_int_equal(train(&place, ways[w], more, output), TT_ERR_DATA);
        assert_says("of step 2 is", ways[w]);
        assert_says("lower learning_rate", ways[w]);
        assert_int_equal(test_count_entries(output, "checkpoint-"), 1);
        char checkpoint[TEST_PATH_BYTES];
        assert_int_equal(test_read_log(test_join(output, "checkpoint-1", checkpoint), "loss", losses, 4), 1);
        assert_true(isfinite(losses[0]));
        assert_int_equal(test_count_entries(output, "model"), 0);
        test_nothing_unfinished(output);
        test_workplace_remove(&place);
    }
}

/* Token 6 is in no row that trains: an evaluation that is no number is null in JSON, and is not the best. */
static void evaluation_is_not_the_best(void **state)
{
    (void)state;
    struct test_workplace place;
    char output[TEST_PATH_BYTES], data[TEST_PATH_BYTES], more[2 * TEST_PATH_BYTES + 200],
        path[TEST_PATH_BYTES];
    struct tt_json json = {0};
    test_workplace_create("llama2", &place);
    damage(&place, "model.embed_tokens.weight", 6 * 40 + 1, NAN);
    test_workplace_write(&place, "eval.jsonl", "{\"input_ids\": [6, 1, 2]}\n", data);
    snprintf(more, sizeof more,
             "eval_dataset '%s' eval_strategy steps eval_steps 1 save_steps 1 load_best_model_at_end true",
             data);
    assert_int_equal(train(&place, ways[0], more, output), TT_OK);
    assert_int_equal(tt_json_read(test_join(output, "trainer_state.json", path), 1 << 20, &json), TT_OK);
    assert_true(tt_json_is_null(tt_json_get(json.root, "best_metric")));
    tt_json_deinit(&json);
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_weights_are_named),  cmocka_unit_test(damaged_token_is_named),
        cmocka_unit_test(damaged_gradient_is_named),  cmocka_unit_test(exploding_training_stops),
        cmocka_unit_test(evaluation_is_not_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
