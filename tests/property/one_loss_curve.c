/* One loss curve, whatever the split: ranks x strategy x micro batches x packing x gradient checkpointing
 * give the curve of the plainest run to fp32 rounding, with LoRA (dropout on: its masks belong to tokens, not
 * to ranks) and with full fine-tuning; and two runs of the same command are the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/thread.h"
#include "support/port.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { STEPS = 8, MACHINES = 2 };

/* A way to split the same global batch of 8 samples. With HYBRID_SHARD the ranks are those of each of two
 * machines. */
struct split {
    const char *ranks, *micro, *accumulation, *strategy, *checkpointing, *prefetch;
};

static const struct split plain = {"1", "8", "1", "NO_SHARD", "false", "NO_PREFETCH"};

static const struct split splits[] = {
    {"1", "8", "1", "FULL_SHARD", "true", "BACKWARD_PRE"},
    {"1", "2", "4", "NO_SHARD", "false", "NO_PREFETCH"},
    {"1", "1", "8", "FULL_SHARD", "true", "BACKWARD_POST"},
    {"2", "4", "1", "FULL_SHARD", "false", "BACKWARD_PRE"},
    {"2", "1", "4", "FULL_SHARD", "true", "NO_PREFETCH"},
    {"2", "2", "2", "SHARD_GRAD_OP", "false", "BACKWARD_PRE"},
    {"2", "4", "1", "NO_SHARD", "true", "BACKWARD_POST"},
    {"2", "1", "4", "NO_SHARD", "false", "BACKWARD_PRE"},
    {"4", "2", "1", "FULL_SHARD", "true", "BACKWARD_POST"},
    {"4", "1", "2", "FULL_SHARD", "false", "BACKWARD_PRE"},
    {"4", "2", "1", "SHARD_GRAD_OP", "true", "BACKWARD_PRE"},
    {"4", "1", "2", "NO_SHARD", "true", "NO_PREFETCH"},
    {"2", "2", "1", "HYBRID_SHARD", "false", "BACKWARD_PRE"},
    {"2", "1", "2", "HYBRID_SHARD", "true", "NO_PREFETCH"},
    {"1", "2", "2", "HYBRID_SHARD", "false", "BACKWARD_POST"},
};

/* One process of the run; those of several machines are threads here, which share nothing that was created
 * apart. */
struct machine {
    struct test_words words;
    const char *output;
    struct tt_thread *thread;
};

static tt_status machine_main(void *argument)
{
    struct machine *machine = argument;
    struct tt_train_summary summary;
    return test_train(machine->words.list, machine->output, &summary);
}

static void set_words(struct machine *machine, const char *family, const struct split *split,
                      const char *more)
{
    char path[512];
    struct test_words *words = &machine->words;
    snprintf(path, sizeof path, "%s/golden/%s/model", TT_TEST_ROOT, family);
    test_words_pair(words, "model_name_or_path", path);
    snprintf(path, sizeof path, "%s/golden/%s/%strain.jsonl", TT_TEST_ROOT, family,
             strncmp(family, "dense/", 6) == 0 ? "../" : "");
    test_words_pair(words, "dataset_name", path);
    test_words_add(words,
                   "bf16 false max_steps 8 logging_steps 1 learning_rate 0.005 save_strategy no threads 1");
    test_words_pair(words, "ranks", split->ranks);
    test_words_pair(words, "per_device_train_batch_size", split->micro);
    test_words_pair(words, "gradient_accumulation_steps", split->accumulation);
    test_words_pair(words, "sharding_strategy", split->strategy);
    test_words_pair(words, "gradient_checkpointing", split->checkpointing);
    test_words_pair(words, "backward_prefetch", split->prefetch);
    test_words_add(words, more);
}

static void run(const char *family, const struct split *split, const char *more, const char *output)
{
    static struct machine machines[MACHINES]; /* large */
    int count = strcmp(split->strategy, "HYBRID_SHARD") == 0 ? MACHINES : 1, port = test_free_port();
    char text[2048] = "";
    for (int m = 0; m < count; m++) {
        machines[m] = (struct machine){.output = output};
        set_words(&machines[m], family, split, more);
        snprintf(text, sizeof text,
                 "num_machines %d machine_rank %d main_process_ip 127.0.0.1 main_process_port %d", count, m,
                 port);
        if (count > 1) test_words_add(&machines[m].words, text);
    }
    for (int m = 0; m < count; m++)
        assert_int_equal(tt_thread_start("machine", machine_main, &machines[m], &machines[m].thread), TT_OK);
    text[0] = '\0';
    for (int m = 0; m < count; m++)
        if (tt_thread_join(machines[m].thread) != TT_OK && text[0] == '\0')
            tt_error_format(tt_error_last(), text, sizeof text);
    if (text[0] != '\0') fail_msg("%s", text);
}

static void same_curve_on(const char *family, const char *more, const struct split *list, size_t count)
{
    double wanted[STEPS], norms[STEPS], got[STEPS], got_norms[STEPS];
    char *output = test_folder_create();
    run(family, &plain, more, output);
    assert_int_equal(test_read_log(output, "loss", wanted, STEPS), STEPS);
    assert_int_equal(test_read_log(output, "grad_norm", norms, STEPS), STEPS);
    assert_true(fabs(wanted[STEPS - 1] - wanted[0]) > 0.01); /* it did train */
    for (size_t i = 0; i < count; i++) {
        run(family, &list[i], more, output);
        assert_int_equal(test_read_log(output, "loss", got, STEPS), STEPS);
        assert_int_equal(test_read_log(output, "grad_norm", got_norms, STEPS), STEPS);
        for (int s = 0; s < STEPS; s++)
            if (fabs(got[s] - wanted[s]) > 2e-5 * wanted[s] ||
                fabs(got_norms[s] - norms[s]) > 1e-3 * norms[s])
                fail_msg("%s, split %zu, step %d: loss %.8f and norm %.8f, wanted %.8f and %.8f", family, i,
                         s + 1, got[s], got_norms[s], wanted[s], norms[s]);
    }
    test_folder_remove(output);
}

static void same_curve(const char *family, const char *more)
{
    same_curve_on(family, more, splits, sizeof splits / sizeof *splits);
}

/* Other layers than those below; adapters of every family: families.c. */
static void full_of_other_families(void **state)
{
    static const struct split few[] = {{"2", "1", "4", "FULL_SHARD", "true", "BACKWARD_PRE"}};
    (void)state;
    same_curve_on("vision/muse_glimmer", "use_peft false", few, 1);
    same_curve_on("dense/olmo3", "use_peft false", few, 1);
    same_curve_on("dense/cohere2", "use_peft false", few, 1);
}

static void lora_with_dropout(void **state)
{
    (void)state;
    same_curve("llama2", "lora_r 4 lora_target_modules all-linear lora_dropout 0.1");
}

/* NEFTune's noise belongs to tokens too, and its size to the row's own length. */
static void noise_on_embeddings(void **state)
{
    (void)state;
    same_curve("llama2", "lora_r 4 lora_dropout 0 neftune_noise_alpha 15");
}

static void lora_with_bias_and_saved_head(void **state)
{
    (void)state;
    same_curve("qwen3",
               "lora_r 4 lora_target_modules [\"q_proj\",\"down_proj\"] lora_modules_to_save [\"lm_head\"]");
}

static void full_with_tied_embeddings(void **state)
{
    (void)state;
    same_curve("llama3", "use_peft false learning_rate 0.001");
}

static void full_untied(void **state)
{
    (void)state;
    same_curve("qwen3", "use_peft false learning_rate 0.001");
}

/* Each matrix is turned by one rank, in any split. */
static void muon_in_full(void **state)
{
    (void)state;
    same_curve("llama3", "use_peft false optim muon ns_dtype float32 learning_rate 0.002 weight_decay 0.1");
}

/* With packing a unit is a pack, so the batches are others; among themselves the splits must agree. */
static void packed(void **state)
{
    (void)state;
    same_curve("mistral", "packing true max_length 64 lora_dropout 0 forward_prefetch true");
}

/* Packing changes which samples share a row, never what a sample sees: one batch that holds all samples has
 * one loss. */
static void packing_changes_nothing(void **state)
{
    (void)state;
    double plain_loss, packed_loss, plain_norm, packed_norm;
    const struct split all = {"1", "64", "1", "NO_SHARD", "false", "NO_PREFETCH"};
    char *output = test_folder_create();
    run("qwen2", &all, "max_steps 1", output);
    assert_int_equal(test_read_log(output, "loss", &plain_loss, 1), 1);
    assert_int_equal(test_read_log(output, "grad_norm", &plain_norm, 1), 1);
    run("qwen2", &all, "max_steps 1 packing true max_length 96", output);
    assert_int_equal(test_read_log(output, "loss", &packed_loss, 1), 1);
    assert_int_equal(test_read_log(output, "grad_norm", &packed_norm, 1), 1);
    assert_true(fabs(plain_loss - packed_loss) < 1e-6 * plain_loss);
    assert_true(fabs(plain_norm - packed_norm) < 1e-4 * plain_norm);
    test_folder_remove(output);
}

/* Phi-3 whose factors change beyond 20 tokens, as in golden/variants; most rows of the data are longer. */
static void make_longrope(struct test_workplace *place, char more[800], const char *settings)
{
    char path[TEST_PATH_BYTES];
    test_workplace_create("phi3", place);
    test_copy_file(TT_TEST_ROOT "/golden/variants/phi3_longrope.json",
                   test_join(place->model, "config.json", path));
    snprintf(more, 800, "model_name_or_path %s %s", place->model, settings);
}

/* LongRoPE's factors are those of a row's own length, whatever is in the micro batch, the pack or the run. */
static void longrope(void **state)
{
    struct test_workplace place;
    char more[800];
    (void)state;
    make_longrope(&place, more, "lora_r 4 lora_target_modules all-linear lora_dropout 0.1");
    same_curve("phi3", more);
    test_workplace_remove(&place);
}

static void first_loss(const char *settings, double *loss, double *norm)
{
    const struct split all = {"1", "64", "1", "NO_SHARD", "false", "NO_PREFETCH"};
    struct test_workplace place;
    char more[800], *output = test_folder_create();
    make_longrope(&place, more, settings);
    run("phi3", &all, more, output);
    assert_int_equal(test_read_log(output, "loss", loss, 1), 1);
    assert_int_equal(test_read_log(output, "grad_norm", norm, 1), 1);
    test_workplace_remove(&place);
    test_folder_remove(output);
}

static void packing_keeps_longrope(void **state)
{
    double loss, norm, packed_loss, packed_norm;
    (void)state;
    first_loss("max_steps 1 lora_target_modules all-linear", &loss, &norm);
    first_loss("max_steps 1 lora_target_modules all-linear packing true max_length 96", &packed_loss,
               &packed_norm);
    assert_true(fabs(loss - packed_loss) < 1e-6 * loss);
    assert_true(fabs(norm - packed_norm) < 1e-4 * norm);
}

/* A longer row in another data set of the run, here the evaluation's, changes no loss of training. */
static void other_rows_keep_longrope(void **state)
{
    struct test_workplace place;
    char path[TEST_PATH_BYTES], rows[TEST_PATH_BYTES], settings[2 * TEST_PATH_BYTES + 200];
    double loss, norm, other_loss, other_norm;
    (void)state;
    test_workplace_create("phi3", &place);
    test_workplace_write(&place, "short.jsonl", "{\"input_ids\": [5, 6, 7, 8, 9, 10, 11, 12, 13]}\n", path);
    test_workplace_write(
        &place, "long.jsonl",
        "{\"input_ids\": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, "
        "23, 24, 25, 26, 27, 28]}\n",
        rows);
    snprintf(settings, sizeof settings, "max_steps 1 lora_target_modules all-linear dataset_name %s", path);
    first_loss(settings, &loss, &norm);
    snprintf(settings, sizeof settings,
             "max_steps 1 lora_target_modules all-linear dataset_name %s eval_dataset %s eval_strategy steps "
             "eval_steps 1",
             path, rows);
    first_loss(settings, &other_loss, &other_norm);
    assert_true(loss == other_loss && norm == other_norm);
    test_workplace_remove(&place);
}

static void same_command_same_bits(void **state)
{
    (void)state;
    char a[600], b[600];
    char *first = test_folder_create(), *second = test_folder_create();
    const struct split split = {"2", "2", "2", "FULL_SHARD", "true", "BACKWARD_PRE"};
    const char *more = "lora_r 4 lora_dropout 0.1 threads 2 bf16 true";
    run("llama3", &split, more, first);
    run("llama3", &split, more, second);
    snprintf(a, sizeof a, "%s/adapter_model.safetensors", first);
    snprintf(b, sizeof b, "%s/adapter_model.safetensors", second);
    test_same_file(a, b);
    test_folder_remove(first);
    test_folder_remove(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_with_dropout),
        cmocka_unit_test(full_of_other_families),
        cmocka_unit_test(noise_on_embeddings),
        cmocka_unit_test(lora_with_bias_and_saved_head),
        cmocka_unit_test(full_with_tied_embeddings),
        cmocka_unit_test(full_untied),
        cmocka_unit_test(muon_in_full),
        cmocka_unit_test(packed),
        cmocka_unit_test(packing_changes_nothing),
        cmocka_unit_test(longrope),
        cmocka_unit_test(packing_keeps_longrope),
        cmocka_unit_test(other_rows_keep_longrope),
        cmocka_unit_test(same_command_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
