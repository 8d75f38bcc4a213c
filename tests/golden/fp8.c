/* Folders in FP8 (fp8/make_fp8.py): decoded, the loss of their numbers is that of the libraries, whatever the scales
 * are of, on any number of ranks; blocks quantized anew by rows too. With products in FP8 the loss stays near, and an
 * adapter trains. Over blocks that are kept, an adapter trains as with PEFT over linears that round their inputs as
 * servers do (fp8/make_blocks.py), also after a checkpoint. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/quantization.h"
#include "nn/kv_cache.h"
#include "support/model_runner.h"
#include "support/train_run.h"

#define FOLDER TT_TEST_ROOT "/golden/fp8/"

static const char *const names[] = {"channel", "tensor", "mistral", "blocks", "powers", "divided"};
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

/* One loss for all rows at once, and on three ranks. */
static void expect_loss(const char *name, const char *more, double want)
{
    static const char *const splits[] = {"per_device_train_batch_size 3",
                                         "per_device_train_batch_size 1 ranks 3"};
    for (int i = 0; i < 2; i++) {
        double loss;
        char words[256];
        (void)snprintf(words, sizeof words, "bf16 false max_steps 1 %s %s", splits[i], more);
        train(name, words, &loss, 1);
        if (fabs(loss - want) > 2e-6 * want) fail_msg("%s, %s: %.8f, not %.8f", name, words, loss, want);
    }
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
        expect_loss(names[i], "fp8_products none", reference(names[i], "stored"));
        if (i >= FIRST_BLOCKS)
            expect_loss(names[i], "fp8_products none fp8_blocks rows", reference(names[i], "rows"));
    }
}

static void products_in_fp8_train(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        double losses[8], stored = reference(names[i], i >= FIRST_BLOCKS ? "rows" : "stored");
        train(names[i], "max_steps 8 per_device_train_batch_size 3 fp8_blocks rows", losses, 8);
        print_message("%s: %.4f, decoded %.4f, after 8 steps %.4f\n", names[i], losses[0], stored, losses[7]);
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
        const char *more = "max_steps 8 per_device_train_batch_size 1 ranks 2 fp8_blocks rows";
        char single[128];
        (void)snprintf(single, sizeof single, "%s fp8_products single", more);
        train(names[i], more, two, 8);
        train(names[i], single, one, 8);
        bool same = memcmp(one, two, sizeof one) == 0;
        if (same != (i < FIRST_BLOCKS)) fail_msg("%s: %.8f and %.8f", names[i], one[7], two[7]);
        assert_true(one[0] == two[0]); /* forward has the same codes */
    }
}

static void must(tt_status status)
{
    if (status != TT_OK) fail_msg("%s", tt_error_last()->message);
}

/* Where inputs are rounded, another order of additions, as of another instruction set, may move one to the next code.
 * No step up to the fourth has such a number; of later ones losses were off by 6e-3 and norms by 6e-2. */
enum { STEPS = 8, EXACT_STEPS = 4 };

static tt_status blocks_json(struct tt_json *json)
{
    return tt_json_read(FOLDER "blocks.json", 1 << 16, json);
}

static void compare_steps(const char *name, const char *kind, const char *output)
{
    struct tt_json json = {0};
    double loss[STEPS], norm[STEPS];
    assert_int_equal(blocks_json(&json), TT_OK);
    const struct tt_json_value *steps = tt_json_get(tt_json_get(json.root, name), kind);
    assert_int_equal(test_read_log(output, "loss", loss, STEPS), STEPS);
    assert_int_equal(test_read_log(output, "grad_norm", norm, STEPS), STEPS);
    for (int i = 0; i < STEPS; i++) {
        const struct tt_json_value *step = tt_json_at(steps, (size_t)i);
        double want_loss = tt_json_number(tt_json_get(step, "loss")),
               want_norm = tt_json_number(tt_json_get(step, "grad_norm"));
        print_message("%s %s step %d: loss %.7f (%.1e), norm %.7f (%.1e)\n", name, kind, i + 1, loss[i],
                      loss[i] / want_loss - 1, norm[i], norm[i] / want_norm - 1);
        bool exact = i < EXACT_STEPS || strcmp(kind, "plain") == 0;
        if (!(fabs(loss[i] - want_loss) <= (exact ? 1e-4 : 3e-2) * want_loss &&
              fabs(norm[i] - want_norm) <= (exact ? 1e-3 : 0.2) * want_norm))
            fail_msg("%s %s step %d: loss %.7f and norm %.7f, wanted %.7f and %.7f", name, kind, i + 1,
                     loss[i], norm[i], want_loss, want_norm);
    }
    tt_json_deinit(&json);
}

static void copy_rows(const char *path, int copies)
{
    static char text[1 << 12];
    FILE *from = fopen(FOLDER "train.jsonl", "r"), *to = fopen(path, "w");
    assert_true(from != NULL && to != NULL);
    size_t bytes = fread(text, 1, sizeof text, from);
    assert_true(bytes > 0 && bytes < sizeof text);
    for (int i = 0; i < copies; i++) assert_int_equal(fwrite(text, 1, bytes, to), bytes);
    fclose(from);
    assert_int_equal(fclose(to), 0);
}

/* Steps of an adapter over the folder: other splits over ranks and micro batches, other levels of memory. */
static void blocks_train_as_servers_multiply(void **state)
{
    static const struct {
        const char *name, *kind, *more;
        int copies; /* of the rows: the mean stays */
    } runs[] = {
        {"blocks", "rounded", "per_device_train_batch_size 3", 1},
        {"blocks", "rounded", "per_device_train_batch_size 3 ranks 2", 2},
        {"blocks", "rounded", "per_device_train_batch_size 1 ranks 3 recompute block", 1},
        {"blocks", "rounded", "per_device_train_batch_size 1 gradient_accumulation_steps 3", 1},
        {"blocks", "rounded", "per_device_train_batch_size 3 fp8_products single recompute cheap", 1},
        {"blocks", "plain", "per_device_train_batch_size 3 fp8_products none", 1},
        {"powers", "rounded", "per_device_train_batch_size 3", 1},
        {"powers", "rounded", "per_device_train_batch_size 3 ranks 2", 2},
        {"powers", "plain", "per_device_train_batch_size 3 fp8_products none", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char model[512], rows[512];
        struct test_words words = {0};
        struct tt_train_summary summary;
        char *output = test_folder_create();
        (void)snprintf(model, sizeof model, FOLDER "%s", runs[i].name);
        (void)snprintf(rows, sizeof rows, "%s/rows.jsonl", output);
        copy_rows(rows, runs[i].copies);
        test_words_pair(&words, "model_name_or_path", model);
        test_words_pair(&words, "dataset_name", rows);
        test_words_pair(&words, "adapter_name_or_path", FOLDER "adapter");
        test_words_add(&words, "bf16 false max_steps 8 learning_rate 0.02 lr_scheduler_type constant "
                               "logging_steps 1 save_strategy no");
        test_words_add(&words, runs[i].more);
        test_train_ok(words.list, output, &summary);
        compare_steps(runs[i].name, runs[i].kind, output);
        test_folder_remove(output);
    }
}

/* Six steps over the rows of `rows` with a checkpoint after three; `more`: ranks, or where to go on from. */
static tt_status run_six(const char *name, const char *rows, const char *more, const char *output)
{
    char model[512];
    struct test_words words = {0};
    struct tt_train_summary summary;
    (void)snprintf(model, sizeof model, FOLDER "%s", name);
    test_words_pair(&words, "model_name_or_path", model);
    test_words_pair(&words, "dataset_name", rows);
    test_words_add(&words, "bf16 false max_steps 6 save_steps 3 learning_rate 0.01 logging_steps 1 lora_r 4 "
                           "lora_dropout 0.1 lora_target_modules all-linear");
    test_words_add(&words, more);
    return test_train(words.list, output, &summary);
}

/* The losses of the last three steps are those of the whole run; of the first of them, which no update separates from
 * the checkpoint, but for the order of additions. */
static void expect_same_end(const char *whole, const char *output, const char *more, bool same_ranks)
{
    double got[6], wanted[6];
    int count = test_read_log(output, "loss", got, 6);
    assert_int_equal(test_read_log(whole, "loss", wanted, 6), 6);
    assert_true(count >= 3);
    for (int i = 0; i < 3; i++) {
        double off = fabs(got[count - 3 + i] / wanted[3 + i] - 1);
        if (!(off <= (same_ranks ? 0 : i == 0 ? 1e-5 : 1e-2)))
            fail_msg("%s: step %d is off by %g", more, 4 + i, off);
    }
}

/* A run over blocks goes on from a checkpoint in one file or in one per rank, on as many ranks to the bit, and on other
 * numbers; but not over other numbers of the base. */
static void blocks_go_on_from_a_checkpoint(void **state)
{
    static const char *const kinds[] = {"FULL_STATE_DICT", "SHARDED_STATE_DICT"};
    static const struct {
        const char *words, *refused;
        bool same_ranks;
    } ways[] = {
        {"ranks 2 per_device_train_batch_size 3", NULL, true},
        {"ranks 2 per_device_train_batch_size 3 recompute block", NULL, true},
        {"ranks 1 per_device_train_batch_size 6", NULL, false},
        {"ranks 3 per_device_train_batch_size 2", NULL, false},
        {"ranks 2 per_device_train_batch_size 3 fp8_blocks rows", "fp8_blocks was \"keep\" and is \"rows\"",
         true},
        {"ranks 2 per_device_train_batch_size 3 fp8_products none",
         "fp8_products was \"all\" and is \"none\"", true},
    };
    (void)state;
    for (int k = 0; k < 2; k++) {
        char rows[512], begin[256], more[1024], file[600], wanted[600];
        char *whole = test_folder_create();
        (void)snprintf(rows, sizeof rows, "%s/rows.jsonl", whole);
        copy_rows(rows, 4);
        (void)snprintf(begin, sizeof begin, "ranks 2 per_device_train_batch_size 3 state_dict_type %s",
                       kinds[k]);
        must(run_six("blocks", rows, begin, whole));
        (void)snprintf(wanted, sizeof wanted, "%s/adapter_model.safetensors", whole);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            char *output = test_folder_create();
            (void)snprintf(more, sizeof more,
                           "%s state_dict_type %s resume_from_checkpoint '%s/checkpoint-3'", ways[i].words,
                           kinds[k], whole);
            tt_status status = run_six("blocks", rows, more, output);
            if (ways[i].refused != NULL) {
                assert_int_equal(status, TT_ERR_USAGE);
                if (strstr(tt_error_last()->message, ways[i].refused) == NULL)
                    fail_msg("'%s' not in '%s'", ways[i].refused, tt_error_last()->message);
            } else {
                must(status);
                expect_same_end(whole, output, more, ways[i].same_ranks);
                (void)snprintf(file, sizeof file, "%s/adapter_model.safetensors", output);
                if (ways[i].same_ranks) test_same_file(file, wanted);
            }
            test_folder_remove(output);
        }
        test_folder_remove(whole);
    }
}

/* eval computes as training does; in bfloat16 within its rounding. */
static void blocks_evaluate_as_servers_multiply(void **state)
{
    static const char *const kinds[] = {"blocks", "powers"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        char model[512];
        struct tt_json json = {0};
        struct test_words words = {0};
        struct tt_eval_result result;
        double limit = i < 2 ? 2e-6 : 0.05;
        assert_int_equal(blocks_json(&json), TT_OK);
        double want = tt_json_number(tt_json_get(tt_json_get(json.root, kinds[i % 2]), "inputs"));
        tt_json_deinit(&json);
        (void)snprintf(model, sizeof model, FOLDER "%s", kinds[i % 2]);
        test_words_pair(&words, "model_name_or_path", model);
        test_words_pair(&words, "eval_dataset", FOLDER "train.jsonl");
        test_words_pair(&words, "bf16", i < 2 ? "false" : "true");
        test_evaluate_ok(words.list, false, &result);
        print_message("%s: %.7f, %.1e\n", kinds[i % 2], result.loss, result.loss / want - 1);
        if (!(fabs(result.loss - want) < limit * want))
            fail_msg("%s: %.8f, not %.8f", kinds[i % 2], result.loss, want);
    }
}

/* Tokens one by one with a cache: a token's activations are rounded alone, so that each is that of a whole pass. */
static void check_greedy(const char *name, const struct tt_json_value *ids)
{
    enum { PROMPT = 3, ALL = 15, VOCAB = 64 };
    static float logits[ALL * VOCAB];
    struct tt_model_facts facts;
    struct tt_model_options options = {.compute_dtype = TT_F32};
    struct tt_quantization_config given = {.load_in_4bit = false};
    struct tt_kv_cache *cache = NULL;
    char folder[512];
    int32_t tokens[PROMPT];
    int64_t length = PROMPT;
    (void)snprintf(folder, sizeof folder, FOLDER "%s", name);
    tt_runner_read_config(folder, NULL, &facts);
    must(tt_quantization_resolve(&given, &facts, TT_F32, &options.quant));
    assert_true(options.quant.blocks && facts.vocab_size == VOCAB);
    struct tt_model_runner *runner = tt_runner_create(&facts, &options);
    tt_runner_load(runner, folder, NULL);
    must(tt_kv_cache_create(runner->device,
                            &(struct tt_kv_cache_config){.layer_count = facts.num_hidden_layers,
                                                         .sequence_count = 1,
                                                         .max_length = ALL,
                                                         .kv_heads = facts.layers[0].kv_heads,
                                                         .head_dim = facts.layers[0].head_dim,
                                                         .dtype = TT_F32},
                            &cache));
    runner->pass.lent.cache = cache;
    assert_int_equal(tt_json_count(ids), ALL);
    for (int i = 0; i < PROMPT; i++) tokens[i] = (int32_t)tt_json_integer(tt_json_at(ids, (size_t)i));
    for (size_t i = PROMPT; i < ALL; i++, length = 1) {
        tt_runner_set_batch(runner, tokens, &length, 1, NULL);
        must(tt_kv_cache_begin(cache, runner->stream, runner->batch.host_cu_seqlens));
        tt_runner_logits(runner, logits);
        tt_kv_cache_end(cache);
        const float *row = logits + (length - 1) * VOCAB;
        tokens[0] = 0;
        for (int32_t v = 1; v < VOCAB; v++)
            if (row[v] > row[tokens[0]]) tokens[0] = v;
        if (tokens[0] != tt_json_integer(tt_json_at(ids, i))) fail_msg("%s: token %zu differs", name, i);
    }
    tt_kv_cache_destroy(cache);
    tt_runner_destroy(runner);
}

static void blocks_generate_as_servers_multiply(void **state)
{
    static const char *const kinds[] = {"blocks", "powers"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tt_json json = {0};
        must(blocks_json(&json));
        check_greedy(kinds[i], tt_json_get(tt_json_get(json.root, kinds[i]), "greedy"));
        tt_json_deinit(&json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoded_numbers_are_those_of_the_folder),
        cmocka_unit_test(products_in_fp8_train),
        cmocka_unit_test(one_copy_trains_as_two),
        cmocka_unit_test(blocks_train_as_servers_multiply),
        cmocka_unit_test(blocks_go_on_from_a_checkpoint),
        cmocka_unit_test(blocks_evaluate_as_servers_multiply),
        cmocka_unit_test(blocks_generate_as_servers_multiply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
