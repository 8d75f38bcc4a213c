/* "Everything that should train does": a parameter that truly gets no gradient ends the run by name, and data
 * that can give some parameters none (rows of two tokens, of one token again and again, a dropout that leaves
 * next to nothing) train. */
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

static const char long_rows[] = "{\"input_ids\": [7, 8, 9, 11]}\n{\"input_ids\": [7, 12, 9, 10]}\n"
                                "{\"input_ids\": [9, 8, 7, 13]}\n{\"input_ids\": [7, 5, 9, 14]}\n";
static const char short_rows[] = "{\"input_ids\": [7, 8]}\n{\"input_ids\": [9, 10]}\n"
                                 "{\"input_ids\": [11, 12]}\n{\"input_ids\": [13, 14]}\n";
static const char equal_rows[] = "{\"input_ids\": [7, 7, 7, 7]}\n{\"input_ids\": [9, 9, 9, 9]}\n"
                                 "{\"input_ids\": [8, 8, 8, 8]}\n{\"input_ids\": [5, 5, 5, 5]}\n";

static const char *const ways[] = {
    "ranks 1 bf16 false",
    "ranks 2 bf16 true per_device_train_batch_size 1",
    "ranks 2 bf16 false sharding_strategy NO_SHARD per_device_train_batch_size 1",
};

static void zero_tensor(const struct test_workplace *place, const char *tensor)
{
    char path[TEST_PATH_BYTES];
    struct tt_safetensors *file = NULL;
    struct tt_str bytes = {0};
    test_join(place->model, "model.safetensors", path);
    assert_int_equal(tt_safetensors_open(path, &file), TT_OK);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, tensor);
    if (entry == NULL) fail_msg("there is no '%s'", tensor);
    size_t size = tt_dtype_bytes(entry->dtype);
    for (int d = 0; d < entry->rank; d++) size *= (size_t)entry->dims[d];
    uint64_t offset = entry->offset;
    tt_safetensors_close(file);
    assert_int_equal(tt_file_read(path, 1 << 26, &bytes), TT_OK);
    memset(bytes.data + offset, 0, size);
    assert_int_equal(tt_file_write_atomic(path, bytes.data, bytes.bytes), TT_OK);
    tt_str_deinit(&bytes);
}

static tt_status train(const struct test_workplace *place, const char *way, const char *rows,
                       const char *more)
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    char data[TEST_PATH_BYTES], output[TEST_PATH_BYTES];
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", test_workplace_write(place, "rows.jsonl", rows, data));
    test_words_add(&words,
                   "threads 1 lora_r 2 lora_dropout 0 save_strategy no max_steps 6 learning_rate 1e-3 "
                   "report_to none overwrite_output_dir true");
    test_words_add(&words, way);
    test_words_add(&words, more);
    uint64_t live = tt_alloc_live();
    tt_status status = test_train(words.list, test_workplace_path(place, "out", output), &summary);
    assert_int_equal(tt_alloc_live(), live);
    return status;
}

static void expect_silent(const struct test_workplace *place, const char *rows, const char *more,
                          const char *name)
{
    char text[4096], wanted[200];
    snprintf(wanted, sizeof wanted, "'%s' has had no gradient in 3 steps and would not train", name);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        tt_status status = train(place, ways[w], rows, more);
        tt_error_format(tt_error_last(), text, sizeof text);
        if (status != TT_ERR_DATA || strstr(text, wanted) == NULL)
            fail_msg("%s: wanted \"%s\", got %s", ways[w], wanted, status == TT_OK ? "no error" : text);
    }
}

static void expect_trains(const struct test_workplace *place, const char *rows, const char *more)
{
    char text[4096];
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        if (train(place, ways[w], rows, more) == TT_OK) continue;
        tt_error_format(tt_error_last(), text, sizeof text);
        fail_msg("%s, %s: %s", ways[w], more, text);
    }
}

#define LAYER "model.layers.1."

static void no_gradient_ends_the_run(void **state)
{
    (void)state;
    struct test_workplace place;
    test_workplace_create("llama2", &place);
    zero_tensor(&place, LAYER "self_attn.o_proj.weight");
    expect_silent(&place, long_rows, "lora_target_modules [\"q_proj\",\"v_proj\"]",
                  LAYER "self_attn.q_proj.lora_B.weight");
    /* Rows of two tokens say nothing of q, and all of v. */
    expect_silent(&place, short_rows, "lora_target_modules [\"q_proj\",\"v_proj\"]",
                  LAYER "self_attn.v_proj.lora_B.weight");
    expect_trains(&place, short_rows, "lora_target_modules [\"q_proj\"]");
    /* o itself trains, and from then on what lies before it. */
    expect_trains(&place, long_rows, "lora_target_modules all-linear");
    zero_tensor(&place, LAYER "mlp.down_proj.weight");
    expect_silent(&place, long_rows, "lora_target_modules [\"up_proj\"]", LAYER "mlp.up_proj.lora_B.weight");
    test_workplace_remove(&place);
}

static void legal_data_trains(void **state)
{
    (void)state;
    struct test_workplace place;
    test_workplace_create("llama2", &place);
    static const char *const rows[] = {long_rows, short_rows, equal_rows};
    static const char *const more[] = {
        "lora_target_modules all-linear",
        "use_peft false",
        "lora_target_modules all-linear packing true max_length 8 packing_strategy bfd",
        "lora_target_modules all-linear lora_dropout 0.999",
        "lora_target_modules all-linear warmup_steps 4",
        "lora_target_modules [\"v_proj\"] modules_to_save [\"embed_tokens\",\"lm_head\"]",
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t m = 0; m < sizeof more / sizeof *more; m++) expect_trains(&place, rows[r], more[m]);
    test_workplace_remove(&place);
}

/* q and k are judged once a batch reaches them, however many did not: the run goes on from a checkpoint
 * between. */
static void silence_is_counted_over_a_resume(void **state)
{
    (void)state;
    struct test_workplace place;
    char text[4096];
    const char *more =
        "lora_target_modules [\"q_proj\"] save_strategy steps save_steps 1 resume_from_checkpoint true "
        "overwrite_output_dir false lr_scheduler_type constant max_steps";
    test_workplace_create("llama2", &place);
    zero_tensor(&place, "model.layers.0.self_attn.o_proj.weight");
    zero_tensor(&place, LAYER "self_attn.o_proj.weight");
    for (int steps = 1; steps <= 3; steps++) {
        char settings[400];
        snprintf(settings, sizeof settings, "%s %d resume_changed true", more, steps);
        tt_status status = train(&place, ways[0], long_rows, settings);
        tt_error_format(tt_error_last(), text, sizeof text);
        if (status != (steps < 3 ? TT_OK : TT_ERR_DATA)) fail_msg("after step %d: %s", steps, text);
    }
    assert_non_null(strstr(text, "has had no gradient in 3 steps"));
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_gradient_ends_the_run),
        cmocka_unit_test(legal_data_trains),
        cmocka_unit_test(silence_is_counted_over_a_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
