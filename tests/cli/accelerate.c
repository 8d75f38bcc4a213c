/* accelerate's configuration file: files with the keys of PEFT's and TRL's published ones, and wrong ones. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "config/store.h"
#include "job/accelerate.h"
#include "job/resolve.h"
#include "support/temporary.h"

struct fixture {
    struct tt_job_spec config;
    struct tt_settings *settings;
    struct tt_str said;
};

static void collect(void *context, enum tt_log_level level, const char *line)
{
    (void)level;
    assert_int_equal(tt_str_printf(context, "%s\n", line), TT_OK);
}

static void open_fixture(struct fixture *fixture)
{
    *fixture = (struct fixture){0};
    assert_int_equal(
        tt_job_settings_create(TT_JOB_TRAIN, &fixture->config, sizeof fixture->config, &fixture->settings),
        TT_OK);
    tt_log_set_sink(collect, &fixture->said);
}

static void close_fixture(struct fixture *fixture)
{
    tt_log_set_sink(NULL, NULL);
    tt_settings_destroy(fixture->settings);
    tt_str_deinit(&fixture->said);
}

static tt_status read_text(struct fixture *fixture, const char *text)
{
    char path[256];
    test_temporary(path, sizeof path, "tt_accelerate_XXXXXX");
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    tt_file_close(descriptor);
    assert_int_equal(tt_file_write_atomic(path, text, strlen(text)), TT_OK);
    tt_status status = tt_accelerate_read(path, fixture->settings);
    remove(path);
    return status;
}

/* As a run reads it: the setting is set, and then its keys are. */
static tt_status apply(struct fixture *fixture, const char *json)
{
    TT_TRY(tt_settings_set(fixture->settings, "fsdp_config", json, "test"));
    return tt_fsdp_config_apply(json, fixture->settings);
}

static const char launcher_keys[] =
    "compute_environment: LOCAL_MACHINE\ndebug: false\ndowncast_bf16: 'no'\nmachine_rank: 0\n"
    "main_training_function: main\nnum_machines: 1\nrdzv_backend: static\nsame_network: true\n"
    "tpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n";

static void version_1_as_peft_has_it(void **state)
{
    struct fixture fixture;
    char text[2000];
    (void)state;
    open_fixture(&fixture);
    snprintf(text, sizeof text,
             "%sdistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
             "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch: "
             "BACKWARD_POST\n"
             "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_forward_prefetch: false\n  fsdp_offload_params: "
             "true\n"
             "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
             "  fsdp_sync_module_states: true\n  fsdp_use_orig_params: false\n",
             launcher_keys);
    assert_int_equal(read_text(&fixture, text), TT_OK);
    assert_int_equal(fixture.config.shard.sharding_strategy, TT_SHARD_GRAD_OP);
    assert_int_equal(fixture.config.shard.backward_prefetch, TT_PREFETCH_POST);
    assert_false(fixture.config.shard.forward_prefetch);
    assert_int_equal(fixture.config.watch.state_dict_type, TT_STATE_DICT_SHARDED);
    assert_int_equal(fixture.config.launch.num_processes, 8);
    assert_true(fixture.config.device.bf16);
    assert_true(fixture.config.shard.offload_params);
    static const char *const said[] = {"fsdp_auto_wrap_policy is accepted without effect",
                                       "fsdp_cpu_ram_efficient_loading is accepted",
                                       "fsdp_sync_module_states", "fsdp_use_orig_params"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const char *found = strstr(tt_str_text(&fixture.said), said[i]);
        if (found == NULL) fail_msg("not said: %s", said[i]);
        assert_null(strstr(found + 1, said[i]));
    }
    assert_null(strstr(tt_str_text(&fixture.said), "tpu"));
    close_fixture(&fixture);
}

static void version_2_as_trl_has_it(void **state)
{
    static const struct {
        const char *reshard;
        enum tt_shard_strategy strategy;
    } cases[] = {{"true", TT_FULL_SHARD}, {"false", TT_SHARD_GRAD_OP}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture;
        char text[2000];
        open_fixture(&fixture);
        snprintf(
            text, sizeof text,
            "%sdistributed_type: FSDP\nenable_cpu_affinity: false\nmixed_precision: bf16\nnum_processes: 2\n"
            "fsdp_config:\n  fsdp_activation_checkpointing: true\n  fsdp_auto_wrap_policy: "
            "TRANSFORMER_BASED_WRAP\n"
            "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_offload_params: false\n"
            "  fsdp_reshard_after_forward: %s\n  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_version: 2\n",
            launcher_keys, cases[i].reshard);
        assert_int_equal(tt_settings_set(fixture.settings, "model_name_or_path", "m", "--m"), TT_OK);
        assert_int_equal(tt_settings_set(fixture.settings, "dataset_name", "d", "--d"), TT_OK);
        assert_int_equal(read_text(&fixture, text), TT_OK);
        assert_int_equal(fixture.config.shard.sharding_strategy, cases[i].strategy);
        assert_true(tt_settings_is_set(fixture.settings, "gradient_checkpointing"));
        assert_null(strstr(tt_str_text(&fixture.said), "offload_params"));
        assert_int_equal(tt_train_resolve(fixture.settings, &fixture.config), TT_OK);
        assert_int_equal(fixture.config.launch.ranks, 2);
        close_fixture(&fixture);
    }
}

static void strategies_by_name_and_number(void **state)
{
    static const struct {
        const char *lines;
        enum tt_shard_strategy strategy;
    } cases[] = {
        {"fsdp_sharding_strategy: 1", TT_FULL_SHARD},
        {"fsdp_sharding_strategy: '2'", TT_SHARD_GRAD_OP},
        {"sharding_strategy: 3", TT_NO_SHARD},
        {"sharding_strategy: hybrid_shard", TT_HYBRID_SHARD},
        {"fsdp_sharding_strategy: 5", TT_HYBRID_SHARD},
        {"reshard_after_forward: NO_SHARD", TT_NO_SHARD},
        {"reshard_after_forward: 2", TT_SHARD_GRAD_OP},
        {"version: 2, reshard_after_forward: 'False'", TT_SHARD_GRAD_OP},
        {"fsdp_sharding_strategy: NO_SHARD, reshard_after_forward: true", TT_NO_SHARD},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture fixture;
        char text[300];
        open_fixture(&fixture);
        snprintf(text, sizeof text, "distributed_type: FSDP\nfsdp_config: {%s}\n", cases[i].lines);
        if (read_text(&fixture, text) != TT_OK) fail_msg("%s: %s", cases[i].lines, tt_error_last()->message);
        if (fixture.config.shard.sharding_strategy != cases[i].strategy) fail_msg("%s", cases[i].lines);
        close_fixture(&fixture);
    }
}

/* The numbers of torch's and accelerate's enumerations: BackwardPrefetch, StateDictType
 * (torch.distributed.fsdp.api), FSDP_SHARDING_STRATEGY (accelerate utils/constants.py), in a file and as
 * flags. */
static void numbers_are_those_of_the_enumerations(void **state)
{
    static const struct {
        const char *key, *number, *setting, *meaning;
    } cases[] = {
        {"fsdp_backward_prefetch", "1", "backward_prefetch", "BACKWARD_PRE"},
        {"fsdp_backward_prefetch", "2", "backward_prefetch", "BACKWARD_POST"},
        {"fsdp_backward_prefetch_policy", "2", "backward_prefetch", "BACKWARD_POST"},
        {"fsdp_state_dict_type", "1", "state_dict_type", "FULL_STATE_DICT"},
        {"fsdp_state_dict_type", "2", "state_dict_type", "SHARDED_STATE_DICT"}, /* LOCAL_STATE_DICT */
        {"fsdp_state_dict_type", "3", "state_dict_type", "SHARDED_STATE_DICT"},
        {"fsdp_sharding_strategy", "1", "sharding_strategy", "FULL_SHARD"},
        {"fsdp_sharding_strategy", "2", "sharding_strategy", "SHARD_GRAD_OP"},
        {"fsdp_sharding_strategy", "3", "sharding_strategy", "NO_SHARD"},
        {"fsdp_sharding_strategy", "4", "sharding_strategy", "HYBRID_SHARD"},
        {"fsdp_sharding_strategy", "5", "sharding_strategy", "HYBRID_SHARD"}, /* HYBRID_SHARD_ZERO2 */
    };
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        struct fixture fixture;
        char text[200], flag[80];
        const char *key = cases[i / 2].key;
        open_fixture(&fixture);
        snprintf(text, sizeof text, "distributed_type: FSDP\nfsdp_config:\n  %s: %s\n", key,
                 cases[i / 2].number);
        snprintf(flag, sizeof flag, "--%s=%s", key, cases[i / 2].number);
        char *const arguments[] = {flag};
        tt_status status = i % 2 == 0 ? read_text(&fixture, text)
                                      : tt_settings_parse_flags(fixture.settings, 1, arguments, NULL);
        if (status != TT_OK) fail_msg("%s: %s", flag, tt_error_last()->message);
        const char *got = tt_settings_find(fixture.settings, cases[i / 2].setting)->text;
        if (strcmp(got, cases[i / 2].meaning) != 0) fail_msg("%s is %s", flag, got);
        close_fixture(&fixture);
    }
}

/* Every key of accelerate's command line whose file form is read is a flag, too: the words land where they do
 * in a file, and what is not needed is said. */
static void keys_are_flags(void **state)
{
    char *arguments[] = {"--model_name_or_path=m",
                         "--dataset_name=d",
                         "--mixed_precision=bf16",
                         "--fsdp_version=2",
                         "--fsdp_reshard_after_forward=false",
                         "--fsdp_use_orig_params=true",
                         "--fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP",
                         "--fsdp_activation_checkpointing=true",
                         "--fsdp_cpu_ram_efficient_loading=true",
                         "--fsdp_sync_module_states=true",
                         "--fsdp_offload_params=true",
                         "--param_dtype=torch.float32",
                         "--buffer_dtype=torch.bfloat16",
                         "--dynamo_backend=no",
                         "--device_map=auto"};
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    assert_int_equal(
        tt_settings_parse_flags(fixture.settings, sizeof arguments / sizeof *arguments, arguments, NULL),
        TT_OK);
    assert_int_equal(tt_train_resolve(fixture.settings, &fixture.config), TT_OK);
    assert_int_equal(fixture.config.shard.sharding_strategy, TT_SHARD_GRAD_OP);
    assert_int_equal(fixture.config.shard.gradient_checkpointing, 1);
    assert_true(fixture.config.shard.offload_params);
    assert_false(fixture.config.device.bf16);
    assert_non_null(strstr(tt_str_text(&fixture.said), "device_map is accepted without effect: device"));
    assert_non_null(strstr(tt_str_text(&fixture.said), "fsdp_use_orig_params is accepted without effect"));
    close_fixture(&fixture);
    static const char *const offloads[][2] = {{"cpu_offload", "{\"offload_params\": true}"},
                                              {"fsdp_cpu_offload", "true"}};
    for (size_t i = 0; i < 2; i++) {
        open_fixture(&fixture);
        assert_int_equal(tt_settings_set(fixture.settings, offloads[i][0], offloads[i][1], "test"), TT_OK);
        assert_string_equal(tt_settings_find(fixture.settings, "offload_params")->text, "true");
        assert_int_equal(tt_settings_set(fixture.settings, offloads[i][0], "{\"pin_memory\": true}", "test"),
                         TT_ERR_USAGE);
        assert_int_equal(tt_settings_set(fixture.settings, offloads[i][0], "3", "test"), TT_ERR_USAGE);
        close_fixture(&fixture);
    }
    open_fixture(&fixture);
    assert_int_equal(tt_settings_set(fixture.settings, "mixed_precision", "fp8", "--mixed_precision"),
                     TT_ERR_UNSUPPORTED);
    assert_int_equal(tt_settings_set(fixture.settings, "mixed_precision", "fp16", "--mixed_precision"),
                     TT_OK);
    close_fixture(&fixture);
}

/* A file that lost its indentation, with fsdp_config empty and without it. */
static void lost_indentation_is_read(void **state)
{
    static const char *const texts[] = {
        ("distributed_type: FSDP\nfsdp_config:\nfsdp_sharding_strategy: SHARD_GRAD_OP\n"
         "fsdp_offload_params: true\nnum_processes: 2\n"),
        "fsdp_sharding_strategy: 2\ndistributed_type: FSDP\nfsdp_offload_params: true\nnum_processes: 2\n",
        ("fsdp_offload_params: true\ndistributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n"
         "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct fixture fixture;
        open_fixture(&fixture);
        if (read_text(&fixture, texts[i]) != TT_OK) fail_msg("%zu: %s", i, tt_error_last()->message);
        assert_int_equal(fixture.config.shard.sharding_strategy, TT_SHARD_GRAD_OP);
        assert_true(fixture.config.shard.offload_params);
        assert_int_equal(fixture.config.launch.num_processes, 2);
        const char *said = strstr(tt_str_text(&fixture.said), "are read as keys of fsdp_config");
        assert_non_null(said);
        assert_null(strstr(said + 1, "are read as keys of"));
        close_fixture(&fixture);
    }
}

/* transformers' fsdp_config: version 2 unless it says otherwise or has keys of version 1 alone. */
static void fsdp_config_of_either_version(void **state)
{
    static const struct {
        const char *json;
        int strategy, prefetch;
    } cases[] = {
        {"{\"backward_prefetch\": \"backward_post\", \"use_orig_params\": true}", TT_FULL_SHARD,
         TT_PREFETCH_POST},
        {"{\"fsdp_backward_prefetch\": 2}", TT_FULL_SHARD, TT_PREFETCH_POST},
        {"{\"reshard_after_forward\": \"shard_grad_op\"}", TT_SHARD_GRAD_OP, TT_PREFETCH_PRE},
        {"{\"version\": 2, \"backward_prefetch\": \"backward_post\"}", TT_FULL_SHARD, TT_PREFETCH_PRE},
        {"{\"reshard_after_forward\": false}", TT_SHARD_GRAD_OP, TT_PREFETCH_PRE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture fixture;
        open_fixture(&fixture);
        if (apply(&fixture, cases[i].json) != TT_OK)
            fail_msg("%s: %s", cases[i].json, tt_error_last()->message);
        if ((int)fixture.config.shard.sharding_strategy != cases[i].strategy)
            fail_msg("%s: strategy", cases[i].json);
        if ((int)fixture.config.shard.backward_prefetch != cases[i].prefetch)
            fail_msg("%s: prefetch", cases[i].json);
        close_fixture(&fixture);
    }
}

/* A file's fp16 is the run's, unless bf16 is given nearer. */
static void float16_of_a_file(void **state)
{
    static const char *const texts[] = {"distributed_type: FSDP\nmixed_precision: fp16\n",
                                        "mixed_precision: FP16\ndistributed_type: MULTI_GPU\n"};
    (void)state;
    for (int given = 0; given < 2; given++)
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            struct fixture fixture;
            open_fixture(&fixture);
            if (given) assert_int_equal(tt_settings_set(fixture.settings, "bf16", "false", "--bf16"), TT_OK);
            assert_int_equal(read_text(&fixture, texts[i]), TT_OK);
            assert_int_equal(fixture.config.device.fp16, !given);
            bool said = strstr(tt_str_text(&fixture.said), "mixed_precision 'fp16' has no effect") != NULL;
            assert_int_equal(said, given);
            close_fixture(&fixture);
        }
}

static void types_and_offload_as_torch_spells_them(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    assert_int_equal(apply(&fixture,
                           "{\"cpu_offload\": {\"offload_params\": true}, \"mixed_precision_policy\": "
                           "{\"param_dtype\": \"torch.float32\", \"reduce_dtype\": \"torch.bfloat16\", "
                           "\"buffer_dtype\": \"torch.float32\"}}"),
                     TT_OK);
    assert_true(fixture.config.shard.offload_params);
    assert_false(fixture.config.device.bf16);
    assert_int_equal(fixture.config.shard.reduce_dtype, TT_REDUCE_BFLOAT16);
    assert_int_equal(apply(&fixture, "{\"cpu_offload\": {\"pin_memory\": true}}"), TT_ERR_USAGE);
    assert_int_equal(apply(&fixture, "{\"param_dtype\": \"float16\"}"), TT_OK);
    assert_true(fixture.config.device.fp16);
    assert_int_equal(apply(&fixture, "{\"param_dtype\": \"float64\"}"), TT_ERR_UNSUPPORTED);
    close_fixture(&fixture);
}

static void nearer_sources_win(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    assert_int_equal(
        tt_settings_set(fixture.settings, "sharding_strategy", "NO_SHARD", "--sharding_strategy"), TT_OK);
    assert_int_equal(tt_settings_set(fixture.settings, "bf16", "false", "--bf16"), TT_OK);
    assert_int_equal(
        read_text(
            &fixture,
            "distributed_type: FSDP\nmixed_precision: bf16\nmain_process_port: null\nnum_processes: -1\n"
            "fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n"),
        TT_OK);
    assert_int_equal(fixture.config.shard.sharding_strategy, TT_NO_SHARD);
    assert_false(fixture.config.device.bf16);
    assert_int_equal(fixture.config.launch.num_processes, 0);
    close_fixture(&fixture);
}

static void other_kinds_of_runs(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture);
    assert_int_equal(
        read_text(&fixture,
                  "distributed_type: MULTI_GPU\nmixed_precision: 'no'\ngpu_ids: all\nnum_processes: 4\n"
                  "num_machines: 2\nmachine_rank: 1\nmain_process_ip: 10.1.2.3\nmain_process_port: 29500\n"
                  "fsdp_config: {}\ndeepspeed_config: {}\nmegatron_lm_config: {}\ndynamo_config: {}\n"
                  "parallelism_config: {parallelism_config_tp_size: 1, dp_shard_size: 2}\n"),
        TT_OK);
    assert_int_equal(fixture.config.shard.sharding_strategy, TT_NO_SHARD);
    assert_int_equal(fixture.config.launch.num_machines, 2);
    assert_int_equal(fixture.config.launch.machine_rank, 1);
    assert_string_equal(fixture.config.launch.main_process_ip, "10.1.2.3");
    assert_int_equal(fixture.config.launch.main_process_port, 29500);
    close_fixture(&fixture);
}

static void wrong_files_are_refused(void **state)
{
    static const struct {
        const char *text;
        tt_status status;
        const char *message, *hint;
    } cases[] = {
        {"distributed_type: FSDP\nnum_proceses: 2\n", TT_ERR_USAGE, "line 2: there is no key 'num_proceses'",
         "'num_processes'"},
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_shard_strategy: 1\n", TT_ERR_USAGE,
         "line 3: there is no key 'fsdp_shard_strategy'", "'fsdp_sharding_strategy'"},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_backward_prefetch: 3}\n", TT_ERR_USAGE,
         "'backward_prefetch' takes one of", NULL},
        {"distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n", TT_ERR_UNSUPPORTED,
         "'DEEPSPEED' is not supported", "FSDP corresponds to ZeRO stage 3"},
        {"distributed_type: MEGATRON_LM\n", TT_ERR_UNSUPPORTED, "'MEGATRON_LM' is not supported", NULL},
        {"distributed_type: FSDP\nmixed_precision: fp8\n", TT_ERR_UNSUPPORTED,
         "mixed_precision: 'fp8' is not supported", "bf16"},
        {"distributed_type: FSDP\ncompute_environment: AMAZON_SAGEMAKER\n", TT_ERR_UNSUPPORTED,
         "'AMAZON_SAGEMAKER'", NULL},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 6}\n", TT_ERR_USAGE,
         "'6' is not a sharding strategy", NULL},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_version: 3}\n", TT_ERR_USAGE, "not a version of FSDP",
         NULL},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_version: [2]}\n", TT_ERR_USAGE, "not a version of FSDP",
         NULL},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, reshard_after_forward: FULL_SHARD}\n",
         TT_ERR_USAGE, "is not true or false", NULL},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_auto_wrap_policy: SOME}\n", TT_ERR_USAGE,
         "is none of TRANSFORMER_BASED_WRAP", NULL},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_backward_prefetch: LATER}\n", TT_ERR_USAGE,
         "'backward_prefetch' takes one of", NULL},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_forward_prefetch: maybe}\n", TT_ERR_USAGE,
         "'forward_prefetch' takes true or false", NULL},
        {"distributed_type: FSDP\nfsdp_config: [1]\n", TT_ERR_USAGE, "takes lines of 'key: value'", NULL},
        {"distributed_type: FSDP\nnum_processes: two\n", TT_ERR_USAGE, "'two' is not a whole number", NULL},
        {"distributed_type: FSDP\nnum_processes: [2]\n", TT_ERR_USAGE, "takes one value", NULL},
        {"distributed_type: FSDP\nparallelism_config: {tp_size: 2}\n", TT_ERR_UNSUPPORTED,
         "ranks split only data and weights", NULL},
        {"learning_rate: 2e-5\n", TT_ERR_USAGE, "has no distributed_type", "file of --config"},
        {"", TT_ERR_USAGE, "has no 'key: value' lines", NULL},
        {"- a\n", TT_ERR_USAGE, "has no 'key: value' lines", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture fixture;
        open_fixture(&fixture);
        tt_status status = read_text(&fixture, cases[i].text);
        const struct tt_error *error = tt_error_last();
        if (status != cases[i].status)
            fail_msg("status %d (%s) for: %s", status, error->message, cases[i].text);
        if (strstr(error->message, cases[i].message) == NULL)
            fail_msg("no '%s' in: %s", cases[i].message, error->message);
        if (cases[i].hint != NULL && strstr(error->hint, cases[i].hint) == NULL)
            fail_msg("no '%s' in: %s", cases[i].hint, error->hint);
        assert_int_equal(error->context_count, 1);
        close_fixture(&fixture);
    }
}

int main(void)
{
    /* What a launcher sets decides whether num_processes is ours to start. */
    static const char *const launcher[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "LOCAL_RANK",
                                           "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof launcher / sizeof *launcher; i++) unsetenv(launcher[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_1_as_peft_has_it),
        cmocka_unit_test(version_2_as_trl_has_it),
        cmocka_unit_test(strategies_by_name_and_number),
        cmocka_unit_test(nearer_sources_win),
        cmocka_unit_test(numbers_are_those_of_the_enumerations),
        cmocka_unit_test(keys_are_flags),
        cmocka_unit_test(lost_indentation_is_read),
        cmocka_unit_test(fsdp_config_of_either_version),
        cmocka_unit_test(float16_of_a_file),
        cmocka_unit_test(types_and_offload_as_torch_spells_them),
        cmocka_unit_test(other_kinds_of_runs),
        cmocka_unit_test(wrong_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
