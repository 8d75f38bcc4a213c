/* The identity of a run: each setting that changes the result, the objective with its options, the groups and columns
 * of its data, and the words of its choices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "job/detect_inputs.h"
#include "job/settings.h"
#include "job/task.h"
#include "run/resume.h"
#include "run/run.h"

static struct tt_json_value *identity_of_run(const struct tt_run *run)
{
    return tt_resume_identity(&run->job, &run->data.inputs, &run->length, 1);
}

static struct tt_json_value *identity_over(const struct tt_objective *objective, struct tt_dataset *data,
                                           const struct tt_base_quant *quant)
{
    const struct tt_job_spec job = {0};
    struct tt_run *run = test_calloc(1, sizeof *run);
    run->job = tt_run_job_of(&job, NULL, NULL);
    run->job.objective = objective;
    run->data.inputs.train = data;
    run->data.inputs.model_options.quant = *quant;
    run->data.inputs.model_facts.stored_fp8_blocks = quant->blocks;
    struct tt_json_value *identity = identity_of_run(run);
    test_free(run);
    assert_non_null(identity);
    return identity;
}

static struct tt_json_value *identity_of(const struct tt_objective *objective, struct tt_dataset *data)
{
    return identity_over(objective, data, &(struct tt_base_quant){0});
}

/* Checks that just the member `name` differs between two identities, and releases the second. */
static void check_differs(const struct tt_json_value *a, struct tt_json_value *b, const char *name)
{
    const char *member;
    const struct tt_json_value *value;
    size_t differ = 0;
    for (size_t i = 0; tt_json_next_member(b, &i, &member, &value);) {
        const struct tt_json_value *before = tt_json_get(a, member);
        if (before == NULL || tt_json_equal(before, value)) continue;
        assert_string_equal(member, name);
        differ++;
    }
    assert_int_equal(differ, 1);
    tt_json_release(b);
}

static struct tt_dataset *make_data(size_t group, const char *column, float last)
{
    const float values[12] = {[11] = last};
    struct tt_dataset *data = NULL;
    assert_int_equal(tt_dataset_create_random(12, 5, 9, 50, 3, &data), TT_OK);
    if (group > 1) assert_int_equal(tt_dataset_group(data, group), TT_OK);
    if (column != NULL) assert_int_equal(tt_dataset_add_column(data, column, TT_PER_SEQUENCE, values), TT_OK);
    return data;
}

static void the_objective_and_its_options(void **state)
{
    (void)state;
    struct tt_objective sft, dpo, other;
    struct tt_dataset *data = make_data(1, NULL, 0);
    assert_int_equal(tt_objective_init("sft", &sft), TT_OK);
    assert_int_equal(tt_objective_init("dpo", &dpo), TT_OK);
    other = dpo;
    other.values[0] = 0.3;
    struct tt_json_value *of_sft = identity_of(&sft, data), *of_dpo = identity_of(&dpo, data);
    check_differs(of_dpo, identity_of(&other, data), "beta (dpo)");
    check_differs(of_sft, identity_of(&dpo, data), "objective");
    tt_json_release(of_sft);
    tt_json_release(of_dpo);
    tt_dataset_destroy(data);
}

static void groups_and_columns(void **state)
{
    (void)state;
    const struct {
        size_t group;
        const char *column;
        float last;
    } others[] = {{1, NULL, 0}, {3, "weight", 0}, {2, "advantage", 0}, {2, "weight", 1}, {2, NULL, 0}};
    struct tt_objective sft;
    assert_int_equal(tt_objective_init("sft", &sft), TT_OK);
    struct tt_dataset *data = make_data(2, "weight", 0), *same = make_data(2, "weight", 0);
    struct tt_json_value *identity = identity_of(&sft, data), *again = identity_of(&sft, same);
    assert_true(tt_json_equal(identity, again));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct tt_dataset *other = make_data(others[i].group, others[i].column, others[i].last);
        check_differs(identity, identity_of(&sft, other), "training data");
        tt_dataset_destroy(other);
    }
    tt_json_release(identity);
    tt_json_release(again);
    tt_dataset_destroy(data);
    tt_dataset_destroy(same);
}

/* Whether a number of the identity counts or measures: the value of a row of numbers, or one of the others. */
static bool is_measured(const char *name)
{
    static const char *const others[] = {TT_RESUME_SAMPLES, TT_RESUME_STEPS, TT_RESUME_WARMUP, "data_seed"};
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_TRAIN];
    size_t bytes = strcspn(name, " ");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return true;
    for (size_t s = 0; s < rows->count; s++)
        for (const struct tt_setting *row = rows->sections[s].rows; row->name != NULL; row++)
            if (strncmp(row->name, name, bytes) == 0 && row->name[bytes] == '\0')
                return row->type == TT_SETTING_INT || row->type == TT_SETTING_DOUBLE ||
                       row->type == TT_SETTING_BYTES;
    return false;
}

/* Checks that no choice is a number, that `name` is the word `wanted`, and releases the identity. */
static void check_words(struct tt_json_value *identity, const char *name, const char *wanted)
{
    const char *member;
    const struct tt_json_value *value;
    for (size_t i = 0; tt_json_next_member(identity, &i, &member, &value);)
        if (tt_json_is_number(value) && !is_measured(member)) fail_msg("%s is written as a number", member);
    const char *word = tt_json_text(tt_json_get(identity, name));
    if (word == NULL || strcmp(word, wanted) != 0)
        fail_msg("%s is %s, wanted %s", name, word != NULL ? word : "no word", wanted);
    tt_json_release(identity);
}

static void choices_are_words(void **state)
{
    static const char *const bases[] = {
        "none",
#define FORMAT(id, name) #name,
#include "tensor/formats.def"
#undef FORMAT
    };
    static const char *const products[] = {"all", "forward", "none", "single"};
    struct tt_objective sft, dpo;
    char loss[TT_OBJECTIVE_WORD_BYTES];
    (void)state;
    assert_int_equal(tt_objective_init("sft", &sft), TT_OK);
    assert_int_equal(tt_objective_init("dpo", &dpo), TT_OK);
    struct tt_dataset *data = make_data(1, NULL, 0);
    for (int i = 0; i < (int)(sizeof bases / sizeof *bases); i++) {
        struct tt_base_quant quant = {.type = (enum tt_quant_type)i};
        check_words(identity_over(&sft, data, &quant), "quantized base", bases[i]);
    }
    for (int i = 0; i < (int)(sizeof products / sizeof *products); i++) {
        struct tt_base_quant quant = {
            .type = TT_QUANT_FP8, .products = (enum tt_fp8_products)i, .blocks = true};
        check_words(identity_over(&sft, data, &quant), "fp8_products", products[i]);
    }
    for (; *tt_objective_loss_word(&dpo, dpo.losses[0], loss) != '\0'; dpo.losses[0]++)
        check_words(identity_of(&dpo, data), "loss_type (dpo)", loss);
    assert_true(dpo.losses[0] > 10);
    tt_dataset_destroy(data);
}

/* A checkpoint of a version that multiplied by the reciprocal of a scale has nothing of codes: one line at a resume. */
static void how_codes_are_made(void **state)
{
    static const struct {
        struct tt_base_quant quant;
        bool coded;
    } cases[] = {{{.type = TT_QUANT_NONE}, false},
                 {{.type = TT_QUANT_NF4}, false},
                 {{.type = TT_QUANT_NF4, .recodes = true}, true},
                 {{.type = TT_QUANT_FP8}, true}};
    const struct tt_job_spec job = {0};
    struct tt_json before = {0};
    (void)state;
    assert_int_equal(tt_json_parse("{}", 2, "tuning", &before), TT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_run *run = test_calloc(1, sizeof *run);
        run->job = tt_run_job_of(&job, NULL, NULL);
        run->data.inputs.model_options.quant = cases[i].quant;
        struct tt_json_value *now = tt_resume_tuning(&run->job, &run->data.inputs);
        assert_non_null(now);
        assert_false(tt_resume_codes_differ(&run->data.inputs, now));
        assert_int_equal(tt_resume_codes_differ(&run->data.inputs, before.root), cases[i].coded);
        assert_int_equal(tt_resume_codes_differ(&run->data.inputs, NULL), cases[i].coded);
        tt_json_release(now);
        test_free(run);
    }
    tt_json_deinit(&before);
}

/* ---- Every row of the identity ---- */

struct change {
    const char *name, *value;
    const char *key;   /* in the identity; NULL: name */
    const char *first; /* "NAME=VALUE" that the change needs, or NULL */
};

/* What checkpoints record of a language model's run, each with another value than its default. */
static const struct change language[] = {
    {"router_aux_loss_coef", "0.5", NULL, NULL},
    {"id2label", "[\"no\",\"yes\"]", NULL, "objective=classification"},
    {"init", "random", NULL, NULL},
    {"use_peft", "false", NULL, NULL},
    {"bf16", "false", NULL, NULL},
    {"seed", "7", NULL, NULL},
    {"lora_r", "4", NULL, NULL},
    {"lora_alpha", "4", NULL, NULL},
    {"lora_dropout", "0.5", NULL, NULL},
    {"use_rslora", "true", NULL, NULL},
    {"use_dora", "true", NULL, NULL},
    {"bias", "all", NULL, NULL},
    {"ensure_weight_tying", "true", NULL, NULL},
    {"trainable_token_indices", "[5]", NULL, NULL},
    {"add_tokens", "[\"<a>\"]", NULL, NULL},
    {"add_special_tokens", "[\"<a>\"]", NULL, NULL},
    {"resize_to_multiple_of", "64", NULL, "add_tokens=[\"<a>\"]"},
    {"lora_target_modules", "o_proj", NULL, NULL},
    {"target_parameters", "[\"experts.down_proj\"]", NULL, NULL},
    {"exclude_modules", "o_proj", NULL, NULL},
    {"lora_modules_to_save", "lm_head", "modules_to_save", NULL},
    {"layers_to_transform", "[1]", NULL, NULL},
    {"layers_pattern", "h", NULL, NULL},
    {"rank_pattern", "{\"q_proj\": 2}", NULL, NULL},
    {"alpha_pattern", "{\"q_proj\": 2}", NULL, NULL},
    {"max_length", "77", NULL, NULL},
    {"packing", "true", NULL, NULL},
    {"packing_strategy", "wrapped", NULL, "packing=true"},
    {"train_sampling_strategy", "sequential", NULL, NULL},
    {"dataloader_drop_last", "true", NULL, NULL},
    {"streaming", "true", NULL, NULL},
    {"buffer_size", "7", NULL, "streaming=true"},
    {"optim", "sgd", NULL, NULL},
    {"learning_rate", "0.5", NULL, NULL},
    {"lr_scheduler_type", "cosine", NULL, NULL},
    {"lr_scheduler_kwargs", "{\"num_cycles\": 2}", NULL, "lr_scheduler_type=cosine"},
    {"weight_decay", "0.5", NULL, NULL},
    {"adam_beta1", "0.5", NULL, NULL},
    {"adam_beta2", "0.5", NULL, NULL},
    {"adam_epsilon", "0.5", NULL, NULL},
    {"max_grad_norm", "0.5", NULL, NULL},
    {"label_smoothing_factor", "0.5", NULL, NULL},
    {"neftune_noise_alpha", "5", NULL, "neftune_noise_alpha=10"},
    {"neftune_noise_alpha", "5", NULL, NULL},
    {"metric_for_best_model", "entropy", NULL, NULL},
    {"data_seed", "7", NULL, NULL},
    {"per_device_train_batch_size", "4", TT_RESUME_SAMPLES, NULL},
    {"gradient_accumulation_steps", "4", TT_RESUME_SAMPLES, NULL},
    {"warmup_steps", "3", NULL, NULL},
    {"warmup_ratio", "0.5", "warmup_steps", NULL},
    {"momentum", "0.5", NULL, "momentum=0.25"},
    {"momentum", "0.5", NULL, NULL},
    {"momentum", "0", NULL, "momentum=0.25"},
    {"nesterov", "true", NULL, "momentum=0.5"},
    {"ns_steps", "4", NULL, "ns_steps=6"},
    {"ns_coefficients", "[1, 2, 3]", NULL, NULL},
    {"ns_epsilon", "1e-6", NULL, NULL},
    {"ns_dtype", "float32", NULL, NULL},
    {"adjust_lr_fn", "match_rms_adamw", NULL, NULL},
    {"loraplus_lr_ratio", "16", NULL, "loraplus_lr_ratio=8"},
    {"loraplus_lr_ratio", "16", NULL, NULL},
    {"embedding_learning_rate", "1e-5", NULL, NULL},
    {"embedding_lr_scale", "0.5", NULL, NULL},
    {"lr_groups", "[{\"modules\":[\"q_proj\"],\"lr\":1}]", NULL, NULL},
    {"quantize_moe_experts", "true", NULL, "load_in_4bit=true"},
};

/* The same of a detection's. */
static const struct change detection[] = {
    {"bf16", "false", NULL, NULL},
    {"seed", "7", NULL, NULL},
    {"image_size", "64", NULL, NULL},
    {"max_image_size", "96", NULL, NULL},
    {"hflip", "0.25", NULL, NULL},
    {"multiscale", "true", NULL, NULL},
    {"group_by_aspect", "false", NULL, NULL},
    {"trainable_layers", "1", NULL, NULL},
    {"optim", "sgd", NULL, NULL},
    {"learning_rate", "0.5", NULL, NULL},
    {"lr_scheduler_type", "cosine", NULL, NULL},
    {"weight_decay", "0.5", NULL, NULL},
    {"adam_beta1", "0.5", NULL, NULL},
    {"adam_beta2", "0.5", NULL, NULL},
    {"adam_epsilon", "0.5", NULL, NULL},
    {"max_grad_norm", "0.5", NULL, NULL},
    {"label_smoothing_factor", "0.5", NULL, NULL},
    {"metric_for_best_model", "map", NULL, NULL},
    {"data_seed", "7", NULL, NULL},
    {"norm_weight_decay", "0.5", NULL, "norm_weight_decay=0.25"},
    {"norm_weight_decay", "0.5", NULL, NULL},
    {"norm_weight_decay", "-1", NULL, "norm_weight_decay=0.25"},
    {"warmup_epochs", "2", "warmup_steps", NULL},
};

struct job {
    struct tt_job_spec spec;
    struct tt_settings *settings;
    struct tt_run *run;
    struct tt_detect_inputs own;
};

static void set(struct job *job, const char *name, const char *value)
{
    if (tt_settings_set(job->settings, name, value, "test") != TT_OK)
        fail_msg("%s", tt_error_last()->message);
}

/* A run of a job with its settings' defaults, but for `first`, then for name and value (NULL: none). */
static void open_job(struct job *job, struct tt_dataset *data, struct tt_detect_dataset *images,
                     const char *first, const char *name, const char *value)
{
    *job = (struct job){.run = test_calloc(1, sizeof *job->run)};
    assert_int_equal(tt_job_settings_create(TT_JOB_TRAIN, &job->spec, sizeof job->spec, &job->settings),
                     TT_OK);
    assert_int_equal(tt_objective_init(images != NULL ? "detection" : "sft", &job->spec.objective), TT_OK);
    if (first != NULL) {
        char text[100], *equals;
        strncpy(text, first, sizeof text - 1);
        text[sizeof text - 1] = '\0';
        equals = strchr(text, '=');
        *equals = '\0';
        set(job, text, equals + 1);
    }
    if (name != NULL) set(job, name, value);
    struct tt_run *run = job->run;
    run->job = tt_run_job_of(&job->spec, NULL, NULL);
    run->length.total_steps = 40;
    run->length.steps_per_epoch = 10;
    if (images != NULL) {
        job->own = (struct tt_detect_inputs){.spec = &job->spec.detect, .train = images};
        run->data.inputs.task = TT_TASK_detection;
        run->data.inputs.own = &job->own;
        return;
    }
    run->data.inputs.train = data;
    run->data.inputs.model_options.train_base = !job->spec.model.use_peft;
    run->data.inputs.model_options.lora = job->spec.lora;
}

static void close_job(struct job *job)
{
    tt_settings_destroy(job->settings);
    test_free(job->run);
}

/* Resumes the run `now` from a checkpoint of the run `before`: refused, with `key` in the message. */
static void check_refused(const struct tt_run *before, struct tt_run *now, const char *key)
{
    const struct tt_world world = {.world_size = 1, .local_count = 1};
    struct tt_json_value *state = tt_json_pack("{s:o, s:o}", "identity", identity_of_run(before), "inputs",
                                               tt_fingerprint_json(&before->data.fingerprint));
    char folder[] = "checkpoint-1";
    assert_non_null(state);
    now->resume.folder = folder;
    now->resume.state.root = state;
    tt_status status = tt_resume_prepare(&now->job, &now->resume, &world, &now->data, &now->length);
    if (status != TT_ERR_USAGE) fail_msg("another %s: resumed", key);
    if (strstr(tt_error_last()->message, key) == NULL)
        fail_msg("another %s: %s", key, tt_error_last()->message);
    tt_error_clear();
    tt_json_release(state);
}

static void each_change_is_refused(const struct change *changes, size_t count, struct tt_dataset *data,
                                   struct tt_detect_dataset *images)
{
    for (size_t i = 0; i < count; i++) {
        const struct change *change = &changes[i];
        struct job before, now;
        open_job(&before, data, images, change->first, NULL, NULL);
        open_job(&now, data, images, change->first, change->name, change->value);
        check_refused(before.run, now.run, change->key != NULL ? change->key : change->name);
        close_job(&before);
        close_job(&now);
    }
}

/* Products of a base in 4 bits are written where they are in FP8. */
static void products_in_fp8(void **state)
{
    (void)state;
    struct tt_dataset *data = make_data(1, NULL, 0);
    struct job before, now;
    for (int i = 0; i < 2; i++) {
        open_job(&before, data, NULL, NULL, NULL, NULL);
        open_job(&now, data, NULL, NULL, NULL, NULL);
        before.run->data.inputs.model_options.quant.type = now.run->data.inputs.model_options.quant.type =
            TT_QUANT_NF4;
        struct tt_base_quant *recoding = &(i == 0 ? &now : &before)->run->data.inputs.model_options.quant;
        recoding->recodes = true;
        recoding->products = TT_FP8_SINGLE;
        check_refused(before.run, now.run,
                      i == 0 ? "fp8_products was \"none\" and is \"single\""
                             : "fp8_products was \"single\" and is \"none\"");
        close_job(&before);
        close_job(&now);
    }
    tt_dataset_destroy(data);
}

static void every_setting_of_a_language_model(void **state)
{
    (void)state;
    struct tt_dataset *data = make_data(1, NULL, 0);
    each_change_is_refused(language, sizeof language / sizeof *language, data, NULL);
    tt_dataset_destroy(data);
}

static void every_setting_of_a_detection(void **state)
{
    (void)state;
    void *no_images = test_calloc(1, 4096); /* a data set of zeros has no images */
    each_change_is_refused(detection, sizeof detection / sizeof *detection, NULL, no_images);
    test_free(no_images);
}

static bool is_listed(const char *name)
{
    for (size_t i = 0; i < sizeof language / sizeof *language; i++)
        if (strcmp(language[i].name, name) == 0) return true;
    for (size_t i = 0; i < sizeof detection / sizeof *detection; i++)
        if (strcmp(detection[i].name, name) == 0) return true;
    return false;
}

/* A row that is said to change the result is tried above. */
static void every_row_is_tried(void **state)
{
    (void)state;
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_TRAIN];
    for (size_t s = 0; s < rows->count; s++)
        for (const struct tt_setting *row = rows->sections[s].rows; row->name != NULL; row++)
            if ((row->changes & (TT_CHANGES_RESULT | TT_CHANGES_RESULT_IF_SET)) != 0 && !is_listed(row->name))
                fail_msg("%s changes the result: add it to the changes of this test", row->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_objective_and_its_options),
        cmocka_unit_test(groups_and_columns),
        cmocka_unit_test(choices_are_words),
        cmocka_unit_test(products_in_fp8),
        cmocka_unit_test(how_codes_are_made),
        cmocka_unit_test(every_setting_of_a_language_model),
        cmocka_unit_test(every_setting_of_a_detection),
        cmocka_unit_test(every_row_is_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
