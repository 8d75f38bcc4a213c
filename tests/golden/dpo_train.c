/* A training with objective dpo against DPOTrainer of TRL 1.16 (dpo/make_pairs.py), and those with orpo and cpo
 * against its ORPOTrainer (orpo/make_orpo.py) and CPOTrainer (cpo/make_cpo.py), one with kto against KTOTrainer
 * (kto/make_kto.py): loss, rewards, log p, logits, accuracy, gradient norm and learning rate of 8 steps and two
 * evaluations in fp32, with the losses sigmoid and robust, from an adapter whose B is zero; from one that is the
 * reference; of all weights; with losses that sort pairs; the same from rows with another number of pairs in a micro
 * batch, on two ranks; and runs that are stopped and
 * resumed; and with the reference computed before the first step, read from a file, or brought by the rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "job/resolve.h"
#include "support/golden.h"
#include "support/root.h"
#include "support/train_run.h"

#define GOLDEN TT_TEST_ROOT "/golden"

enum { ROWS = 10 };

/* The model of ../llama2 with a tokenizer; the first 6 rows, to evaluate on. */
static void make_inputs(void)
{
    static const char *const files[][2] = {
        {"llama2/model/config.json", "model/config.json"},
        {"llama2/model/model.safetensors", "model/model.safetensors"},
        {"dpo/tokenizer/tokenizer.json", "model/tokenizer.json"},
        {"dpo/tokenizer/tokenizer_config.json", "model/tokenizer_config.json"},
    };
    struct tt_str text = {0};
    if (tt_path_exists(test_at("model"))) return;
    assert_int_equal(tt_dir_create(test_at("model")), TT_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char from[512];
        snprintf(from, sizeof from, GOLDEN "/%s", files[i][0]);
        assert_int_equal(tt_file_read(from, 1 << 20, &text), TT_OK);
        assert_int_equal(tt_file_write_atomic(test_at(files[i][1]), text.data, text.bytes), TT_OK);
        tt_str_deinit(&text);
    }
    test_copy_lines(GOLDEN "/dpo/train.jsonl", 6, test_at("eval.jsonl"));
}

/* The settings of all runs. */
static const char common[] =
    "objective dpo beta 0.3 bf16 false max_steps 8 weight_decay 0 warmup_steps 2 lr_scheduler_type linear "
    "learning_rate 0.01 train_sampling_strategy sequential logging_steps 1 eval_strategy steps eval_steps 4 "
    "report_to none device cpu overwrite_output_dir true";

static tt_status train(const char *const *pairs, const char *output)
{
    struct tt_job_spec job = {0};
    struct test_words words = {0};
    struct tt_settings *settings = NULL;
    struct tt_train_summary summary;
    char model[300], rows[300];
    tt_status status = TT_OK;
    snprintf(model, sizeof model, "%s", test_at("model"));
    snprintf(rows, sizeof rows, "%s", test_at("eval.jsonl"));
    TT_GO(tt_job_settings_create(TT_JOB_TRAIN, &job, sizeof job, &settings));
    TT_GO(tt_settings_set(settings, "output_dir", test_at(output), "test"));
    TT_GO(tt_settings_set(settings, "adapter_name_or_path", GOLDEN "/llama2/adapter_init", "test"));
    TT_GO(tt_settings_set(settings, "model_name_or_path", model, "test"));
    TT_GO(tt_settings_set(settings, "dataset_name", GOLDEN "/dpo/train.jsonl", "test"));
    TT_GO(tt_settings_set(settings, "eval_dataset", rows, "test"));
    test_words_add(&words, common);
    for (const char *const *at = words.list; *at != NULL; at += 2)
        TT_GO(tt_settings_set(settings, at[0], at[1], "test"));
    for (; *pairs != NULL; pairs += 2) TT_GO(tt_settings_set(settings, pairs[0], pairs[1], "test"));
    TT_GO(tt_train_resolve(settings, &job));
    TT_GO(tt_trainer_run(&job, settings, NULL, NULL, &summary));
out:
    tt_settings_destroy(settings);
    return status;
}

static void train_ok(const char *const *pairs, const char *output)
{
    if (train(pairs, output) == TT_OK) return;
    char text[2048];
    tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}

static void compare_row(const char *name, int line, const struct tt_json_value *got,
                        const struct tt_json_value *want)
{
    const char *key;
    const struct tt_json_value *value;
    assert_true(tt_json_count(want) >= 7);
    for (size_t member = 0; tt_json_next_member(want, &member, &key, &value);) {
        const struct tt_json_value *ours = tt_json_get(got, key);
        if (!tt_json_is_number(ours)) fail_msg("%s, row %d: there is no '%s'", name, line, key);
        double x = tt_json_number(ours), y = tt_json_number(value);
        /* A reward is a difference of sums as large as 200; the other values have no such cancellation. */
        double relative = strstr(key, "grad_norm") != NULL ? 1e-3 : 5e-5;
        double absolute = strstr(key, "rewards/") != NULL ? 1e-4 : 2e-5;
        if (!(fabs(x - y) <= relative * fabs(y) + absolute))
            fail_msg("%s, row %d: %s is %.9g, TRL logs %.9g", name, line, key, x, y);
    }
}

static void compare_log(const char *objective, const char *name, const char *output)
{
    struct tt_json want = {0}, got = {0};
    char path[400], golden[400];
    snprintf(path, sizeof path, "%s/trainer_state.json", test_at(output));
    snprintf(golden, sizeof golden, GOLDEN "/%s/train.json", objective);
    assert_int_equal(tt_json_read(golden, 1 << 20, &want), TT_OK);
    assert_int_equal(tt_json_read(path, 1 << 20, &got), TT_OK);
    const struct tt_json_value *rows = tt_json_get(tt_json_get(want.root, "runs"), name),
                               *log = tt_json_get(got.root, "log_history");
    assert_int_equal(tt_json_count(rows), ROWS);
    assert_true(tt_json_count(log) >= ROWS);
    for (int i = 0; i < ROWS; i++)
        compare_row(name, i, tt_json_at(log, (size_t)i), tt_json_at(rows, (size_t)i));
    tt_json_deinit(&want);
    tt_json_deinit(&got);
}

static void sigmoid(void **state)
{
    static const char *const settings[] = {
        "per_device_train_batch_size", "4", "per_device_eval_batch_size", "6", "save_strategy", "no", NULL};
    (void)state;
    make_inputs();
    train_ok(settings, "sigmoid");
    compare_log("dpo", "sigmoid", "sigmoid");
}

static void robust(void **state)
{
    static const char *const settings[] = {"per_device_train_batch_size",
                                           "4",
                                           "per_device_eval_batch_size",
                                           "6",
                                           "save_strategy",
                                           "no",
                                           "loss_type",
                                           "[\"robust\"]",
                                           "label_smoothing",
                                           "0.1",
                                           NULL};
    (void)state;
    make_inputs();
    train_ok(settings, "robust");
    compare_log("dpo", "robust", "robust");
}

/* Means are over the step, so another split gives TRL's numbers too. */
static void split(void **state)
{
    static const char *const two_ranks[] = {"per_device_train_batch_size",
                                            "2",
                                            "per_device_eval_batch_size",
                                            "2",
                                            "save_strategy",
                                            "no",
                                            "ranks",
                                            "2",
                                            NULL};
    static const char *const micro_batches[] = {"per_device_train_batch_size",
                                                "1",
                                                "gradient_accumulation_steps",
                                                "4",
                                                "per_device_eval_batch_size",
                                                "5",
                                                "save_strategy",
                                                "no",
                                                NULL};
    (void)state;
    make_inputs();
    train_ok(two_ranks, "two_ranks");
    compare_log("dpo", "sigmoid", "two_ranks");
    train_ok(micro_batches, "micro_batches");
    compare_log("dpo", "sigmoid", "micro_batches");
}

#define CONTINUED "adapter_name_or_path", GOLDEN "/llama2/adapter_random"
#define FULL "adapter_name_or_path", "null", "use_peft", "false", "learning_rate", "0.001"
#define SPLIT                                                                                                \
    "per_device_train_batch_size", "1", "gradient_accumulation_steps", "2", "per_device_eval_batch_size",    \
        "2", "ranks", "2", "save_strategy", "no"
#define WHOLE "per_device_train_batch_size", "4", "per_device_eval_batch_size", "6", "save_strategy", "no"

/* The reference of an adapter that goes on is a copy of it, and that of all weights a copy of them: in one piece, and
 * in the shards of two ranks. */
static void copied_reference(void **state)
{
    static const struct {
        const char *run, *output;
        const char *settings[20];
    } runs[] = {{"continued", "continued", {CONTINUED, WHOLE}},
                {"continued", "continued_split", {CONTINUED, SPLIT}},
                {"continued", "continued_whole", {CONTINUED, SPLIT, "sharding_strategy", "NO_SHARD"}},
                {"full", "full", {FULL, WHOLE}},
                {"full", "full_split", {FULL, SPLIT}},
                {"full", "full_kept", {FULL, SPLIT, "sharding_strategy", "SHARD_GRAD_OP"}}};
    (void)state;
    make_inputs();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        train_ok(runs[i].settings, runs[i].output);
        compare_log("dpo", runs[i].run, runs[i].output);
    }
}

/* Losses that sort the pairs of a step: another split of a step sorts the same pairs. */
static void sorted(void **state)
{
    static const char *const losses[][2] = {{"aot", "loss_type aot label_smoothing 0.1"},
                                            {"aot_unpaired", "loss_type [\"aot_unpaired\",\"sft\"]"}};
    static const char *const splits[][2] = {
        {"whole", "per_device_train_batch_size 4 per_device_eval_batch_size 6"},
        {"ranks", "per_device_train_batch_size 2 per_device_eval_batch_size 3 ranks 2"},
        {"micro",
         "per_device_train_batch_size 1 gradient_accumulation_steps 4 per_device_eval_batch_size 6"}};
    (void)state;
    make_inputs();
    for (size_t i = 0; i < 6; i++) {
        const char *const *loss = losses[i / 3], *const *split = splits[i % 3];
        struct test_words words = {0};
        char output[60];
        snprintf(output, sizeof output, "%s_%s", loss[0], split[0]);
        test_words_add(&words, "save_strategy no");
        test_words_add(&words, loss[1]);
        test_words_add(&words, split[1]);
        train_ok(words.list, output);
        compare_log("dpo", loss[0], output);
    }
}

/* Pairs weighed by how likely their answers are to the model: whole, and split. */
static void weighted(void **state)
{
    static const struct {
        const char *run, *output, *settings;
    } runs[] = {
        {"weighted", "weighted", "per_device_train_batch_size 4 per_device_eval_batch_size 6"},
        {"weighted", "weighted_split",
         "per_device_train_batch_size 1 gradient_accumulation_steps 2 per_device_eval_batch_size 2 ranks 2 "
         "shared_prompt false"},
        {"weighted_robust", "weighted_robust",
         "per_device_train_batch_size 4 per_device_eval_batch_size 6 loss_type [\"robust\",\"sigmoid_norm\"] "
         "label_smoothing 0.1 adapter_name_or_path " GOLDEN "/llama2/adapter_random"}};
    (void)state;
    make_inputs();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct test_words words = {0};
        test_words_add(&words, "save_strategy no use_weighting true");
        test_words_add(&words, runs[i].settings);
        train_ok(words.list, runs[i].output);
        compare_log("dpo", runs[i].run, runs[i].output);
    }
}

/* The same rows, settings and adapter with ORPO, which has no reference; then split. */
static void orpo(void **state)
{
    static const char *const splits[][2] = {
        {"orpo", "per_device_train_batch_size 4 per_device_eval_batch_size 6"},
        {"orpo_split",
         "per_device_train_batch_size 1 gradient_accumulation_steps 2 per_device_eval_batch_size 2 ranks 2"}};
    (void)state;
    make_inputs();
    for (size_t i = 0; i < 2; i++) {
        struct test_words words = {0};
        test_words_add(&words, "objective orpo save_strategy no");
        test_words_add(&words, splits[i][1]);
        train_ok(words.list, splits[i][0]);
        compare_log("orpo", "orpo", splits[i][0]);
    }
}

/* CPO, then SimPO, then CPO split. */
static void cpo(void **state)
{
    static const char *const plain[] = {"objective",
                                        "cpo",
                                        "per_device_train_batch_size",
                                        "4",
                                        "per_device_eval_batch_size",
                                        "6",
                                        "save_strategy",
                                        "no",
                                        NULL};
    static const char *const simpo[] = {"objective",
                                        "cpo",
                                        "loss_type",
                                        "simpo",
                                        "beta",
                                        "2",
                                        "simpo_gamma",
                                        "1",
                                        "cpo_alpha",
                                        "0",
                                        "per_device_train_batch_size",
                                        "4",
                                        "per_device_eval_batch_size",
                                        "6",
                                        "save_strategy",
                                        "no",
                                        NULL};
    static const char *const split[] = {"objective",
                                        "cpo",
                                        "per_device_train_batch_size",
                                        "1",
                                        "gradient_accumulation_steps",
                                        "2",
                                        "per_device_eval_batch_size",
                                        "2",
                                        "save_strategy",
                                        "no",
                                        "ranks",
                                        "2",
                                        NULL};
    (void)state;
    make_inputs();
    train_ok(plain, "cpo");
    compare_log("cpo", "cpo", "cpo");
    train_ok(simpo, "simpo");
    compare_log("cpo", "simpo", "simpo");
    train_ok(split, "cpo_split");
    compare_log("cpo", "cpo", "cpo_split");
}

/* KTO with its divergence, with weights, and without divergence; then split: the mismatched answers are those of the
 * step. */
static void kto(void **state)
{
    static const struct {
        const char *name, *output, *more;
    } runs[] = {
        {"kto", "kto", "beta 0.3 per_device_train_batch_size 4 per_device_eval_batch_size 4"},
        {"weights", "weights",
         "beta 0.2 desirable_weight 1.5 undesirable_weight 0.5 per_device_train_batch_size 4 "
         "per_device_eval_batch_size 4"},
        {"apo_zero_unpaired", "apo_zero_unpaired",
         "beta 0.3 loss_type apo_zero_unpaired per_device_train_batch_size 4 per_device_eval_batch_size 4"},
        {"kto", "kto_ranks", "beta 0.3 per_device_train_batch_size 2 per_device_eval_batch_size 2 ranks 2"},
        {"kto", "kto_micro",
         "beta 0.3 per_device_train_batch_size 1 gradient_accumulation_steps 4 per_device_eval_batch_size 4"},
    };
    char rows[300];
    (void)state;
    make_inputs();
    test_copy_lines(GOLDEN "/kto/train.jsonl", 4, test_at("labelled.jsonl"));
    snprintf(rows, sizeof rows, "%s", test_at("labelled.jsonl"));
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct test_words words = {0};
        test_words_add(&words, "objective kto save_strategy no dataset_name " GOLDEN "/kto/train.jsonl");
        test_words_add(&words, runs[i].more);
        test_words_add(&words, "eval_dataset");
        test_words_add(&words, rows);
        train_ok(words.list, runs[i].output);
        compare_log("kto", runs[i].name, runs[i].output);
    }
}

/* The result of a run that is resumed from step 4 has the bytes of one that was not stopped. */
static void resumes(const char *name, const char *more, const char *weights)
{
    char from[400], a[400], b[400], outputs[2][40];
    snprintf(outputs[0], sizeof outputs[0], "%s_begun", name);
    snprintf(outputs[1], sizeof outputs[1], "%s_rest", name);
    snprintf(from, sizeof from, "%s/checkpoint-4", test_at(outputs[0]));
    for (int part = 0; part < 2; part++) {
        struct test_words words = {0};
        test_words_add(&words, "per_device_train_batch_size 4 save_strategy steps save_steps 4");
        test_words_add(&words, more);
        if (part == 1) test_words_pair(&words, "resume_from_checkpoint", from);
        train_ok(words.list, outputs[part]);
    }
    snprintf(a, sizeof a, "%s/%s", test_at(outputs[0]), weights);
    snprintf(b, sizeof b, "%s/%s", test_at(outputs[1]), weights);
    test_same_file(a, b);
}

/* Settings as words, with `folder` as the folder of prepared rows. */
static void train_words(const char *words, const char *folder, const char *output)
{
    struct test_words list = {0};
    char kept[300];
    snprintf(kept, sizeof kept, "%s", test_at(folder));
    test_words_add(&list, words);
    test_words_pair(&list, "dataset_prepared_path", kept);
    train_ok(list.list, output);
}

static tt_status note_path(void *context, const char *path)
{
    return tt_str_printf(context, "%s", path);
}

static void same_adapter(const char *one, const char *other)
{
    char a[400], b[400];
    snprintf(a, sizeof a, "%s/adapter_model.safetensors", test_at(one));
    snprintf(b, sizeof b, "%s/adapter_model.safetensors", test_at(other));
    test_same_file(a, b);
}

#define BEFORE "save_strategy no precompute_ref_log_probs true "

/* The reference is computed before the first step: the same numbers, with every kind of reference and split. */
static void precomputed(void **state)
{
    static const struct {
        const char *objective, *run, *output, *settings;
    } runs[] = {
        {"dpo", "sigmoid", "before", BEFORE "per_device_train_batch_size 4 per_device_eval_batch_size 6"},
        {"dpo", "sigmoid", "before_split",
         BEFORE "per_device_train_batch_size 1 gradient_accumulation_steps 2 per_device_eval_batch_size 2 "
                "ranks 2 precompute_ref_batch_size 5"},
        {"dpo", "continued", "before_continued",
         BEFORE "per_device_train_batch_size 4 per_device_eval_batch_size 6 adapter_name_or_path " GOLDEN
                "/llama2/adapter_random"},
        {"dpo", "full", "before_full",
         BEFORE "per_device_train_batch_size 4 per_device_eval_batch_size 6 adapter_name_or_path null "
                "use_peft false learning_rate 0.001 ranks 2 per_device_train_batch_size 2"},
        {"dpo", "aot", "before_aot",
         BEFORE
         "per_device_train_batch_size 4 per_device_eval_batch_size 6 loss_type aot label_smoothing 0.1"},
    };
    (void)state;
    make_inputs();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        train_words(runs[i].settings, runs[i].output, runs[i].output);
        compare_log(runs[i].objective, runs[i].run, runs[i].output);
    }
    train_words("save_strategy no per_device_train_batch_size 4 per_device_eval_batch_size 6", "before",
                "beside");
    same_adapter("before", "beside");
}

/* Answers to other prompts have a reference of their own; another split of the step has the same. */
static void precomputed_kto(void **state)
{
    static const char *const splits[] = {
        "per_device_train_batch_size 4 per_device_eval_batch_size 4",
        "per_device_train_batch_size 2 per_device_eval_batch_size 2 ranks 2 precompute_ref_batch_size 1",
        "per_device_train_batch_size 1 gradient_accumulation_steps 4 per_device_eval_batch_size 4 "
        "precompute_ref_batch_size 2"};
    char rows[300];
    (void)state;
    make_inputs();
    test_copy_lines(GOLDEN "/kto/train.jsonl", 4, test_at("labelled.jsonl"));
    snprintf(rows, sizeof rows, "%s", test_at("labelled.jsonl"));
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct test_words words = {0};
        test_words_add(&words, "objective kto dataset_name " GOLDEN "/kto/train.jsonl " BEFORE);
        test_words_add(&words, splits[i]);
        test_words_pair(&words, "eval_dataset", rows);
        train_ok(words.list, "before_kto");
        compare_log("kto", "kto", "before_kto");
    }
    static const char *const shuffled[] = {"objective",
                                           "kto",
                                           "dataset_name",
                                           GOLDEN "/kto/train.jsonl",
                                           "precompute_ref_log_probs",
                                           "true",
                                           "train_sampling_strategy",
                                           "random",
                                           NULL};
    assert_int_equal(train(shuffled, "shuffled"), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "which another order changes"));
}

/* Rows of pairs with log p of a reference; those of row `without` lack one, or both. */
static void write_given(const char *path, int without, bool both)
{
    struct tt_str text = {0}, lines = {0};
    int row = 0;
    assert_int_equal(tt_file_read(GOLDEN "/dpo/train.jsonl", 1 << 20, &text), TT_OK);
    for (char *line = strtok(text.data, "\n"); line != NULL; line = strtok(NULL, "\n"), row++) {
        line[strlen(line) - 1] = '\0';
        assert_int_equal(tt_str_printf(&lines, "%s", line), TT_OK);
        if (row != without) assert_int_equal(tt_str_printf(&lines, ", \"ref_chosen_logps\": -12.5"), TT_OK);
        if (row != without || !both)
            assert_int_equal(tt_str_printf(&lines, ", \"ref_rejected_logps\": -14.25"), TT_OK);
        assert_int_equal(tt_str_printf(&lines, "}\n"), TT_OK);
    }
    assert_int_equal(tt_file_write_atomic(path, lines.data, lines.bytes), TT_OK);
    tt_str_deinit(&text);
    tt_str_deinit(&lines);
}

static tt_status train_given(const char *settings, const char *output)
{
    struct test_words words = {0};
    char rows[300];
    snprintf(rows, sizeof rows, "%s", test_at("given.jsonl"));
    test_words_add(&words, "precompute_ref_log_probs true save_strategy no eval_strategy no "
                           "per_device_train_batch_size 1");
    test_words_add(&words, settings);
    test_words_pair(&words, "dataset_name", rows);
    return train(words.list, output);
}

/* The loss of the first step follows from its log p and from what the row says. */
static void given(void **state)
{
    struct tt_json log = {0};
    char path[400];
    (void)state;
    make_inputs();
    write_given(test_at("given.jsonl"), -1, false);
    assert_int_equal(train_given("max_steps 1", "given"), TT_OK);
    snprintf(path, sizeof path, "%s/trainer_state.json", test_at("given"));
    assert_int_equal(tt_json_read(path, 1 << 20, &log), TT_OK);
    const struct tt_json_value *row = tt_json_at(tt_json_get(log.root, "log_history"), 0);
    double chosen = tt_json_number(tt_json_get(row, "logps/chosen")) + 12.5;
    double rejected = tt_json_number(tt_json_get(row, "logps/rejected")) + 14.25;
    double loss = tt_json_number(tt_json_get(row, "loss"));
    assert_true(fabs(loss - log1p(exp(-0.3 * (chosen - rejected)))) < 1e-6 * (1 + loss));
    tt_json_deinit(&log);
    assert_int_equal(train_given("ld_alpha 0.5", "given_ld"), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "ld_alpha weighs tokens"));
    write_given(test_at("given.jsonl"), 3, true);
    assert_int_equal(train_given("max_steps 1", "given_some"), TT_ERR_DATA);
    assert_non_null(
        strstr(tt_error_last()->message, "11 of the 12 training rows bring log p of a reference"));
    write_given(test_at("given.jsonl"), 3, false);
    assert_int_equal(train_given("max_steps 1", "given_half"), TT_ERR_DATA);
    assert_non_null(
        strstr(tt_error_last()->message, "the row has 'ref_rejected_logps', and no 'ref_chosen_logps'"));
}

/* A file that is there is read; one that is damaged is made anew. */
static void kept(void **state)
{
    static const char settings[] = BEFORE "eval_strategy no per_device_train_batch_size 4 max_steps 3";
    char pattern[400];
    struct tt_str paths = {0}, whole = {0}, again = {0};
    (void)state;
    make_inputs();
    train_words(settings, "kept", "kept_first");
    snprintf(pattern, sizeof pattern, "%s/reference-*.logps", test_at("kept"));
    assert_int_equal(tt_path_match(pattern, note_path, &paths), TT_OK);
    assert_int_equal(tt_file_read(tt_str_text(&paths), 1 << 20, &whole), TT_OK);
    for (size_t damage = 0; damage < whole.bytes; damage += 29) {
        whole.data[damage] ^= 16;
        assert_int_equal(tt_file_write_atomic(tt_str_text(&paths), whole.data, whole.bytes), TT_OK);
        whole.data[damage] ^= 16;
        train_words(settings, "kept", "kept_damaged");
        assert_int_equal(tt_file_read(tt_str_text(&paths), 1 << 20, &again), TT_OK);
        assert_int_equal(again.bytes, whole.bytes);
        assert_memory_equal(again.data, whole.data, whole.bytes);
        tt_str_deinit(&again);
        if (damage > 100) damage += whole.bytes / 3;
    }
    same_adapter("kept_first", "kept_damaged");
    tt_str_deinit(&paths);
    tt_str_deinit(&whole);
}

static void resumed(void **state)
{
    static const char adapter[] = "adapter_model.safetensors", whole[] = "model.safetensors";
    (void)state;
    make_inputs();
    resumes("dpo", "objective dpo", adapter);
    resumes("orpo", "objective orpo", adapter);
    resumes("cpo", "objective cpo", adapter);
    resumes("continued", "objective dpo adapter_name_or_path " GOLDEN "/llama2/adapter_random", adapter);
    resumes("full", "objective dpo use_peft false adapter_name_or_path null", whole);
    resumes("before", "objective dpo precompute_ref_log_probs true", adapter);
    resumes("before_full",
            "objective dpo use_peft false adapter_name_or_path null precompute_ref_log_probs true", whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sigmoid),
                                       cmocka_unit_test(robust),
                                       cmocka_unit_test(split),
                                       cmocka_unit_test(sorted),
                                       cmocka_unit_test(copied_reference),
                                       cmocka_unit_test(weighted),
                                       cmocka_unit_test(orpo),
                                       cmocka_unit_test(cpo),
                                       cmocka_unit_test(kto),
                                       cmocka_unit_test(precomputed),
                                       cmocka_unit_test(precomputed_kto),
                                       cmocka_unit_test(given),
                                       cmocka_unit_test(kept),
                                       cmocka_unit_test(resumed)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
