/* The rows of a training run: every key of the libraries whose files we read is known; what does not go
 * together is found. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "config/store.h"
#include "job/resolve.h"

/* Earlier spellings and scripts' own keys, which the releases of golden/trl/defaults.json lack: what those
 * have is compared in golden/trl_defaults.c. `name=default` where the default must be theirs. */
static const char *const known[] = {
    "activation_checkpointing",
    "activation_checkpointing_kwargs",
    "evaluation_strategy",
    "warmup_ratio=0",
    "per_gpu_train_batch_size",
    "per_gpu_eval_batch_size",
    "no_cuda",
    "overwrite_output_dir",
    "group_by_length",
    "save_safetensors",
    "adafactor",
    "logging_dir",
    "half_precision_backend",
    "torch_dtype",
    "max_seq_length",
    "fsdp_min_num_params",
    "fsdp_transformer_layer_cls_to_wrap",
    "include_tokens_per_second",
    "jit_mode_eval",
    "use_ipex",
    "include_inputs_for_metrics",
    "use_mps_device",
    "past_index",
    "dataset_batch_size",
    "num_of_sequences",
    "chars_per_token",
    "datasets",
    "streaming",
    "test_split_size",
    "gradient_checkpointing_use_reentrant",
};

struct fixture {
    struct tt_job_spec config;
    struct tt_settings *settings;
};

static void open_fixture(struct fixture *fixture)
{
    *fixture = (struct fixture){0};
    assert_int_equal(
        tt_job_settings_create(TT_JOB_TRAIN, &fixture->config, sizeof fixture->config, &fixture->settings),
        TT_OK);
}

static tt_status give(struct fixture *fixture, const char *yaml)
{
    return tt_settings_parse_yaml(fixture->settings, yaml, strlen(yaml), "t.yaml");
}

static void every_key_is_known(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char name[100];
        const char *equals = strchr(known[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)strcspn(known[i], "="), known[i]);
        const struct tt_setting_entry *entry = tt_settings_find(fixture.settings, name);
        if (entry == NULL) fail_msg("'%s' is not known", name);
        if (equals != NULL && (entry->text == NULL || strcmp(entry->text, equals + 1) != 0))
            fail_msg("'%s' is '%s', not '%s'", name, entry->text, equals + 1);
        if (equals == NULL && entry->row->type == TT_SETTING_TRISTATE) assert_null(entry->text);
    }
    tt_settings_destroy(fixture.settings);
}

/* transformers' use_cpu, and its older spelling, are asked for: on a machine with GPUs too. */
static void use_cpu_is_the_device_cpu(void **state)
{
    static const char *const asked[] = {"use_cpu: true\n", "no_cuda: true\n", "device: cpu\n"};
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct fixture fixture;
        open_fixture(&fixture);
        assert_int_equal(fixture.config.device.choice, TT_DEVICE_AUTO);
        assert_int_equal(give(&fixture, asked[i]), TT_OK);
        assert_int_equal(tt_settings_settle(fixture.settings), TT_OK);
        assert_int_equal(fixture.config.device.choice, TT_DEVICE_CPU);
        tt_settings_destroy(fixture.settings);
    }
}

/* A row that is refused says why; one that is not needed too; help is there where it is shown. */
static void rows_explain_themselves(void **state)
{
    (void)state;
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_TRAIN];
    for (size_t s = 0; s < rows->count; s++)
        for (const struct tt_setting *row = rows->sections[s].rows; row->name != NULL; row++) {
            if (row->only != NULL && row->only_reason == NULL) fail_msg("%s has no reason", row->name);
            if (row->unneeded == NULL && row->offset != TT_SETTING_NO_FIELD && row->help == NULL)
                fail_msg("%s has no help", row->name);
        }
}

static bool is_only_known(const struct tt_setting *row)
{
    return row->unneeded != NULL || (row->only != NULL && row->offset == TT_SETTING_NO_FIELD);
}

/* Keys of other libraries that have no setting are in tables of their own, and no setting is there. */
static void known_keys_stand_apart(void **state)
{
    int apart = 0;
    (void)state;
    for (int kind = 0; kind < TT_JOB_KINDS; kind++)
        for (size_t s = 0; s < tt_job_rows[kind].count; s++) {
            const struct tt_setting *rows = tt_job_rows[kind].sections[s].rows;
            bool first = is_only_known(rows);
            for (const struct tt_setting *row = rows; row->name != NULL; row++)
                if (is_only_known(row) != first)
                    fail_msg("%s and %s are in one table", rows->name, row->name);
            apart += first;
        }
    assert_true(apart >= 9);
}

/* No two rows are called the same, old spellings included. */
static void names_are_unique(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    for (size_t i = 0; i < fixture.settings->count; i++) {
        const struct tt_setting *row = fixture.settings->entries[i].row;
        for (const char *at = row->aliases; at != NULL && *at != 0;) {
            char name[100];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
            if (tt_settings_find(fixture.settings, name)->row != row) fail_msg("'%s' is two settings", name);
            at += strcspn(at, " ");
            at += strspn(at, " ");
        }
    }
    tt_settings_destroy(fixture.settings);
}

/* The recipe of mission's first row, as people write it. */
static void a_recipe_lands_in_the_struct(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    const struct tt_job_spec *config = &fixture.config;
    assert_int_equal(
        give(&fixture, "model_name_or_path: models/l11b\ndataset_name: data.jsonl\ntorch_dtype: bfloat16\n"
                       "lora_r: 8\nlora_alpha: 16\nlora_dropout: 0.05\n"
                       "lora_target_modules: [q_proj, k_proj, v_proj, o_proj]\n"
                       "max_seq_length: 4096\nper_device_train_batch_size: 4\n"
                       "gradient_accumulation_steps: 8\nlearning_rate: 2e-5\nlr_scheduler_type: cosine\n"
                       "warmup_ratio: 0.1\nweight_decay: 0.01\nnum_train_epochs: 3\nbf16: yes\nseed: 42\n"
                       "evaluation_strategy: steps\neval_steps: 0.25\nsave_strategy: no\nreport_to: [none]\n"
                       "gradient_checkpointing: true\noptim: adamw_torch\nfsdp: shard_grad_op auto_wrap\n"),
        TT_OK);
    assert_int_equal(tt_train_resolve(fixture.settings, &fixture.config), TT_OK);
    assert_int_equal(config->lora.r, 8);
    assert_true(config->lora.alpha == 16);
    assert_true(tt_job_model_options(&config->model, &config->lora, &config->device, false).lora.enabled);
    assert_string_equal(config->lora.target_modules, "[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]");
    assert_int_equal(config->data.max_length, 4096);
    assert_true(config->optim.warmup_ratio == 0.1);
    assert_true(config->watch.eval_steps == 0.25);
    assert_int_equal(config->watch.eval_strategy, TT_INTERVAL_STEPS);
    assert_int_equal(config->watch.save_strategy, TT_INTERVAL_NO);
    assert_int_equal(config->watch.report_to, TT_REPORT_NONE);
    assert_int_equal(config->shard.sharding_strategy, TT_SHARD_GRAD_OP);
    assert_string_equal(config->optim.optim, "adamw_torch");
    assert_int_equal(config->data.eval_packing, -1);
    tt_settings_destroy(fixture.settings);
}

/* A text with a default has a value, whatever a file says: its readers do not ask. */
/* BitsAndBytesConfig as transformers' recipes write it; torch's names of types. */
static void a_mapping_sets_the_settings_of_its_keys(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    assert_int_equal(give(&fixture,
                          "quantization_config:\n  load_in_4bit: true\n  bnb_4bit_quant_type: nf4\n"
                          "  bnb_4bit_use_double_quant: true\n  bnb_4bit_compute_dtype: torch.bfloat16\n"
                          "  llm_int8_skip_modules: null\n  quant_method: bitsandbytes\n"
                          "torch_dtype: torch.bfloat16\nsave_dtype: torch.float32\n"),
                     TT_OK);
    assert_true(fixture.config.quantization.load_in_4bit);
    assert_true(fixture.config.quantization.use_double_quant);
    assert_string_equal(fixture.config.quantization.compute_dtype, "bfloat16");
    assert_int_equal(fixture.config.watch.save_dtype, TT_SAVE_FLOAT32);
    assert_non_null(
        strstr(tt_settings_origin(fixture.settings, "load_in_4bit"), "t.yaml line 1, quantization_config"));
    /* The resolved file has what the mapping said, and not the mapping beside it. */
    struct tt_str yaml = {0};
    assert_int_equal(tt_settings_write_yaml(fixture.settings, &yaml), TT_OK);
    assert_non_null(strstr(tt_str_text(&yaml), "load_in_4bit: true"));
    assert_null(strstr(tt_str_text(&yaml), "quantization_config:"));
    tt_str_deinit(&yaml);
    char *arguments[] = {"--quantization_config", "{\"load_in_8bit\": true}", "--load_in_4bit", "false"};
    assert_int_equal(tt_settings_parse_flags(fixture.settings, 4, arguments, NULL), TT_OK);
    assert_true(fixture.config.quantization.load_in_8bit);
    assert_false(fixture.config.quantization.load_in_4bit);
    tt_settings_destroy(fixture.settings);
    static const char *const wrong[] = {"quantization_config: {load_in_5bit: true}\n",
                                        "quantization_config: {learning_rate: 1}\n",
                                        "quantization_config: [1]\n",
                                        "quantization_config: {quant_method: gptq}\n",
                                        "quantization_config: {load_in_4bit: 7}\n",
                                        "save_dtype: torch.int8\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        open_fixture(&fixture);
        if (give(&fixture, wrong[i]) == TT_OK) fail_msg("accepted: %s", wrong[i]);
        tt_settings_destroy(fixture.settings);
    }
}

static bool has_word(const char *words, const char *word)
{
    return tt_words_find(words, word, NULL);
}

/* `bias: none` is PEFT's own default and stands in every recipe. */
static void none_is_a_word_where_there_is_one(void **state)
{
    struct fixture fixture;
    int words = 0;
    (void)state;
    open_fixture(&fixture);
    for (size_t i = 0; i < fixture.settings->count; i++) {
        struct tt_setting_entry *entry = &fixture.settings->entries[i];
        const struct tt_setting *row = entry->row;
        char flag[80], yaml[160], none[] = "none"; /* secrets are overwritten in place */
        if (row->unneeded != NULL) continue;
        snprintf(flag, sizeof flag, "--%s", row->name);
        char *const arguments[] = {flag, none};
        snprintf(yaml, sizeof yaml, "%s: none\n", row->name);
        if (has_word(row->choices, "none") || has_word(row->only, "none")) {
            words++;
            for (int file = 0; file < 2; file++) {
                tt_status status =
                    file ? tt_settings_parse_yaml(fixture.settings, yaml, strlen(yaml), "a.yaml")
                         : tt_settings_parse_flags(fixture.settings, 2, arguments, NULL);
                if (status != TT_OK) fail_msg("%s: %s", row->name, tt_error_last()->message);
                if (strcasecmp(entry->text, "none") != 0) fail_msg("%s is %s", row->name, entry->text);
            }
            continue;
        }
        /* Without such a word it is null: accepted or refused as null is, with the same result. */
        tt_status as_null = tt_settings_set(fixture.settings, row->name, "null", "--null");
        const char *wanted = entry->text;
        tt_status status = tt_settings_parse_flags(fixture.settings, 2, arguments, NULL);
        if (status != as_null) fail_msg("%s: status %d, null: %d", row->name, status, as_null);
        bool same = entry->text == wanted ||
                    (entry->text != NULL && wanted != NULL && strcmp(entry->text, wanted) == 0);
        if (!same) fail_msg("%s: none is '%s'", row->name, entry->text);
    }
    assert_int_equal(words, 5); /* bias, fp8_products, recompute, report_to, train_on_eos */
    tt_settings_destroy(fixture.settings);
}

static void null_never_takes_a_default_away(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    for (size_t i = 0; i < fixture.settings->count; i++) {
        struct tt_setting_entry *entry = &fixture.settings->entries[i];
        if (entry->row->default_text == NULL || entry->row->offset == TT_SETTING_NO_FIELD) continue;
        if (tt_settings_assign(fixture.settings, entry, "null", false, "test") == TT_OK &&
            entry->text == NULL)
            fail_msg("%s lost its default", entry->row->name);
    }
    assert_int_equal(give(&fixture, "model: m\ndataset: d\nlr_scheduler_type:\noutput_dir: null\n"), TT_OK);
    assert_string_equal(fixture.config.optim.lr_scheduler_type, "linear");
    assert_string_equal(fixture.config.run.output_dir, "trainer_output");
    tt_settings_destroy(fixture.settings);
}

static void what_follows_is_settled(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    assert_int_equal(
        give(
            &fixture,
            "model: m\ndataset: d\neval_strategy: steps\nlogging_steps: 25\nuse_peft: false\n"
            "num_processes: 2\n"
            "fsdp_config: {version: 1, reshard_after_forward: no_shard, backward_prefetch: backward_post}\n"),
        TT_OK);
    assert_int_equal(tt_train_resolve(fixture.settings, &fixture.config), TT_OK);
    assert_true(fixture.config.watch.eval_steps == 25);
    assert_false(
        tt_job_model_options(&fixture.config.model, &fixture.config.lora, &fixture.config.device, false)
            .lora.enabled);
    assert_int_equal(fixture.config.launch.ranks, 2);
    assert_int_equal(fixture.config.shard.sharding_strategy, TT_NO_SHARD);
    assert_int_equal(fixture.config.shard.backward_prefetch, TT_PREFETCH_POST);
    tt_settings_destroy(fixture.settings);
}

/* What is set by a nearer source stays: the resolved file of this run must give this run. */
static void resolving_twice_changes_nothing(void **state)
{
    struct fixture first, second;
    struct tt_str a = {0};
    (void)state;
    open_fixture(&first);
    open_fixture(&second);
    assert_int_equal(
        give(&first, "model: m\ndataset: d\nfsdp: hybrid_shard offload\neval_strategy: steps\nuse_cpu: true\n"
                     "num_processes: 2\nrank_pattern: {q_proj: 4}\nlr_scheduler_type: "
                     "cosine\nlr_scheduler_kwargs: '{\"num_cycles\": 0.5}'\n"),
        TT_OK);
    char *nearer[] = {"--sharding_strategy=NO_SHARD"};
    assert_int_equal(tt_settings_parse_flags(first.settings, 1, nearer, NULL), TT_OK);
    assert_int_equal(tt_train_resolve(first.settings, &first.config), TT_OK);
    assert_int_equal(first.config.shard.sharding_strategy, TT_NO_SHARD);
    assert_int_equal(tt_settings_write_yaml(first.settings, &a), TT_OK);
    assert_int_equal(give(&second, a.data), TT_OK);
    assert_int_equal(tt_train_resolve(second.settings, &second.config), TT_OK);
    for (size_t i = 0; i < first.settings->count; i++) {
        const struct tt_setting_entry *x = &first.settings->entries[i], *y = &second.settings->entries[i];
        if (x->text == NULL || y->text == NULL)
            assert_ptr_equal(x->text, y->text);
        else
            assert_string_equal(x->text, y->text);
    }
    tt_str_deinit(&a);
    tt_settings_destroy(first.settings);
    tt_settings_destroy(second.settings);
}

/* Words of recipes for GPUs without bfloat16: all mean half precision, whatever bf16 says beside fp16. */
static void float16_is_computed_in_bfloat16(void **state)
{
    static const char *const texts[] = {
        "fp16: true\n",
        "bf16: false\nfp16: true\n",
        "bf16: true\nfp16: true\n",
        "fp16: true\nfp16_backend: apex\nfp16_opt_level: O2\nhalf_precision_backend: cuda_amp\n",
        "dtype: float16\n",
        "torch_dtype: torch.float16\nfp16_full_eval: true\n",
        "mixed_precision: fp16\n",
        "bf16: false\nparam_dtype: torch.float16\n",
        "load_in_4bit: true\nbnb_4bit_compute_dtype: float16\n",
        "quantization_config: {load_in_4bit: true, bnb_4bit_compute_dtype: torch.float16}\n",
        "bf16: false\nfp16: true\nload_in_4bit: true\nbnb_4bit_compute_dtype: float16\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct fixture fixture;
        struct tt_str text = {0};
        open_fixture(&fixture);
        assert_int_equal(tt_str_printf(&text, "model_name_or_path: m\ndataset_name: d\n%s", texts[i]), TT_OK);
        assert_int_equal(give(&fixture, tt_str_text(&text)), TT_OK);
        assert_int_equal(tt_train_resolve(fixture.settings, &fixture.config), TT_OK);
        assert_true(fixture.config.device.bf16);
        tt_settings_destroy(fixture.settings);
        tt_str_deinit(&text);
    }
}

static void contradictions_are_found(void **state)
{
    static const struct {
        const char *yaml;
        tt_status status;
        const char *message;
    } cases[] = {
        {"learning_rate: 0\n", TT_ERR_USAGE, "learning_rate must be above 0"},
        {"optim: adafactor\n", TT_ERR_UNSUPPORTED, "'optim' supports only"},
        {"optim: none\n", TT_ERR_UNSUPPORTED, "sgd; not 'none'"},
        {"optim:\n", TT_ERR_UNSUPPORTED, "sgd; not 'null'"},
        {"accelerator_config: {split_batches: true}\n", TT_ERR_UNSUPPORTED, "'split_batches'"},
        {"model_init_kwargs: {rope_scaling: {}}\n", TT_ERR_USAGE, "there is no setting 'rope_scaling'"},
        {"model_init_kwargs: {dtype: bfloat16}\ndtype: float32\n", TT_ERR_USAGE,
         "dtype is bfloat16, and dtype is float32"},
        {"neftune_noise_alpha: -1\n", TT_ERR_USAGE, "'neftune_noise_alpha'"},
        {"use_qalora: true\n", TT_ERR_UNSUPPORTED, "'use_qalora'"},
        {"load_in_4bit: true\nload_in_8bit: true\n", TT_ERR_USAGE, "are both on"},
        {"load_in_4bit: true\nbnb_4bit_compute_dtype: float32\n", TT_ERR_USAGE,
         "the run computes in bfloat16"},
        {"load_in_4bit: true\nbf16: false\nbnb_4bit_compute_dtype: float16\n", TT_ERR_USAGE,
         "the run computes in float32"},
        {"mixed_precision: fp8\n", TT_ERR_UNSUPPORTED, "'mixed_precision'"},
        {"bnb_4bit_quant_type: int4\n", TT_ERR_USAGE, "takes one of: nf4 fp4"},
        {"packing_strategy: bfd_split\n", TT_ERR_USAGE, "'packing_strategy' takes one of: bfd wrapped"},
        {"group_by_length: true\ntrain_sampling_strategy: sequential\n", TT_ERR_USAGE,
         "group_by_length is on, and train_sampling_strategy is sequential"},
        {"train_sampling_strategy: batch_rebalance\n", TT_ERR_USAGE,
         "one of: random sequential group_by_length"},
        {"loss_type: dft\n", TT_ERR_UNSUPPORTED, "loss_type 'dft'"},
        {"dtype: float64\n", TT_ERR_UNSUPPORTED, "'dtype'"},
        {"init_lora_weights: pizza\n", TT_ERR_USAGE, "init_lora_weights is 'pizza', which is none of: true"},
        {"max_length: -1\n", TT_ERR_USAGE, "'max_length' takes a number from 0"},
        {"lr_scheduler_type: cosin\n", TT_ERR_UNSUPPORTED, "'lr_scheduler_type' supports only: linear"},
        {"lr_scheduler_kwargs: {cycles: 1}\n", TT_ERR_USAGE, "unknown key 'cycles'"},
        {"num_train_epochs: 0\n", TT_ERR_USAGE, "the run has no steps"},
        {"use_peft: false\nadapter_name_or_path: a\n", TT_ERR_USAGE, "use_peft is off"},
        {"save_strategy: best\n", TT_ERR_USAGE, "save_strategy best needs evaluations"},
        {"load_best_model_at_end: true\n", TT_ERR_USAGE, "needs evaluations"},
        {"load_best_model_at_end: true\neval_strategy: epoch\n", TT_ERR_USAGE, "to be the same"},
        {"load_best_model_at_end: true\neval_strategy: steps\neval_steps: 200\n", TT_ERR_USAGE,
         "a multiple of eval_steps"},
        {"eval_strategy: best\n", TT_ERR_USAGE, "'best' is a save_strategy only"},
        {"save_steps: 0\n", TT_ERR_USAGE, "save_steps must be above 0"},
        {"logging_steps: 2.5\n", TT_ERR_USAGE, "logging_steps is 2.5"},
        {"warmup_steps: 10.5\n", TT_ERR_USAGE, "warmup_steps must be a whole number"},
        {"num_machines: 2\nmachine_rank: 2\n", TT_ERR_USAGE, "machine_rank 2 is not below"},
        {"num_machines: 2\n", TT_ERR_USAGE, "main_process_ip is missing"},
        {"fsdp: full_shards\n", TT_ERR_USAGE, "unknown word 'full_shards'"},
        {"fsdp_config: {shard: 1}\n", TT_ERR_USAGE, "there is no key 'shard'"},
        {"use_cpu: true\ndevice: cuda\n", TT_ERR_USAGE, "use_cpu is on, and device is cuda"},
        {"report_to: clearml\n", TT_ERR_USAGE, "'report_to' takes one or more of"},
        {"report_to: [wandb, 1]\n", TT_ERR_USAGE, "'report_to' takes one or more of"},
        {"report_to: [none, wandb]\n", TT_ERR_USAGE, "report_to names 'none' and others"},
        {"per_device_train_batch_size: 0\n", TT_ERR_USAGE, "a number from 1"},
        {"lora_dropout: 1\n", TT_ERR_USAGE, "'lora_dropout' takes a number from 0 to 0.999"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture fixture;
        open_fixture(&fixture);
        assert_int_equal(give(&fixture, "model: m\ndataset: d\n"), TT_OK);
        tt_status status = give(&fixture, cases[i].yaml);
        if (status == TT_OK) status = tt_train_resolve(fixture.settings, &fixture.config);
        if (status != cases[i].status)
            fail_msg("status %d (%s) for: %s", status, tt_error_last()->message, cases[i].yaml);
        if (strstr(tt_error_last()->message, cases[i].message) == NULL)
            fail_msg("no '%s' in: %s", cases[i].message, tt_error_last()->message);
        tt_settings_destroy(fixture.settings);
    }
}

int main(void)
{
    /* What a launcher sets decides whether num_processes is ours to start. */
    static const char *const launcher[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "LOCAL_RANK",
                                           "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof launcher / sizeof *launcher; i++) unsetenv(launcher[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(use_cpu_is_the_device_cpu),
        cmocka_unit_test(every_key_is_known),
        cmocka_unit_test(rows_explain_themselves),
        cmocka_unit_test(known_keys_stand_apart),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(a_recipe_lands_in_the_struct),
        cmocka_unit_test(what_follows_is_settled),
        cmocka_unit_test(resolving_twice_changes_nothing),
        cmocka_unit_test(float16_is_computed_in_bfloat16),
        cmocka_unit_test(contradictions_are_found),
        cmocka_unit_test(a_mapping_sets_the_settings_of_its_keys),
        cmocka_unit_test(none_is_a_word_where_there_is_one),
        cmocka_unit_test(null_never_takes_a_default_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
