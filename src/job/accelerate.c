#include "job/accelerate.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/log.h"
#include "base/str.h"
#include "config/value.h"
#include "config/yaml.h"
#include "tensor/dtype.h"

struct reading {
    struct tt_settings *settings;
    const char *origin; /* of the file */
    const char *alias;  /* the setting that holds the keys; NULL: a file of accelerate */
    int64_t fsdp_version;
    bool is_fsdp; /* distributed_type is FSDP, so fsdp_config has effect */
    const struct tt_yaml_node *fsdp_map;
};

struct key;
typedef tt_status take_key(const struct reading *reading, const struct key *key,
                           const struct tt_yaml_node *node);

struct key {
    const char *name;
    take_key *take;
    const char *argument; /* the setting that receives the value, or the reason why there is none */
};

static tt_status refuse(const struct reading *reading, const struct tt_yaml_node *node, tt_status kind,
                        const char *why)
{
    return tt_fail(kind, "%s line %zu: %s: '%.80s' %s", reading->origin, node->line, node->key,
                   node->text != NULL ? node->text : "...", why);
}

/* Sets `name` unless a source of higher precedence has set it. */
static tt_status set(const struct reading *reading, const struct tt_yaml_node *node, const char *name,
                     const char *value)
{
    char origin[300];
    if (reading->alias != NULL) return tt_settings_imply(reading->settings, reading->alias, name, value);
    snprintf(origin, sizeof origin, "%.200s line %zu", reading->origin, node->line);
    return tt_settings_suggest(reading->settings, name, value, origin);
}

static tt_status one_value(const struct reading *reading, const struct tt_yaml_node *node)
{
    if (node->kind == TT_YAML_SCALAR) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%s line %zu: '%s' takes one value", reading->origin, node->line, node->key);
}

static tt_status read_bool(const struct reading *reading, const struct tt_yaml_node *node, bool *out)
{
    TT_TRY(one_value(reading, node));
    if (tt_value_parse_bool(node->text, out)) return TT_OK;
    return refuse(reading, node, TT_ERR_USAGE, "is not true or false");
}

static tt_status take_setting(const struct reading *reading, const struct key *key,
                              const struct tt_yaml_node *node)
{
    TT_TRY(one_value(reading, node));
    return set(reading, node, key->argument, node->text);
}

static tt_status take_unneeded(const struct reading *reading, const struct key *key,
                               const struct tt_yaml_node *node)
{
    if (node->kind != TT_YAML_SCALAR && node->first == NULL) return TT_OK; /* `tpu_env: []` is empty */
    tt_info("%s is accepted without effect: %s (%s line %zu)", node->key, key->argument, reading->origin,
            node->line);
    return TT_OK;
}

/* A switch that has a meaning only when it is on. */
static tt_status take_unneeded_if_on(const struct reading *reading, const struct key *key,
                                     const struct tt_yaml_node *node)
{
    bool on;
    TT_TRY(read_bool(reading, node, &on));
    return on ? take_unneeded(reading, key, node) : TT_OK;
}

static tt_status take_refused(const struct reading *reading, const struct key *key,
                              const struct tt_yaml_node *node)
{
    bool on = false;
    if (node->kind == TT_YAML_MAP && node->first == NULL) return TT_OK;
    if (node->kind == TT_YAML_SCALAR && tt_value_parse_bool(node->text, &on) && !on) return TT_OK;
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s line %zu: '%s' is not supported", reading->origin,
                               node->line, node->key);
    tt_hint("%s", key->argument);
    return status;
}

static tt_status take_environment(const struct reading *reading, const struct key *key,
                                  const struct tt_yaml_node *node)
{
    (void)key;
    TT_TRY(one_value(reading, node));
    if (tt_ascii_same(node->text, "LOCAL_MACHINE")) return TT_OK;
    return refuse(reading, node, TT_ERR_UNSUPPORTED, "is not supported: only LOCAL_MACHINE is");
}

static tt_status take_distributed_type(const struct reading *reading, const struct key *key,
                                       const struct tt_yaml_node *node)
{
    (void)key;
    TT_TRY(one_value(reading, node));
    if (tt_ascii_same(node->text, "FSDP") || tt_ascii_same(node->text, "NO")) return TT_OK;
    /* MULTI_GPU, MULTI_CPU and similar types are DistributedDataParallel: every rank has all parameters. */
    if (tt_ascii_same_start(node->text, "MULTI_", 6))
        return set(reading, node, "sharding_strategy", "NO_SHARD");
    tt_status status = refuse(reading, node, TT_ERR_UNSUPPORTED, "is not supported");
    tt_hint("use FSDP, MULTI_GPU, MULTI_CPU or NO; FSDP corresponds to ZeRO stage 3");
    return status;
}

static tt_status take_mixed_precision(const struct reading *reading, const struct key *key,
                                      const struct tt_yaml_node *node)
{
    (void)key;
    TT_TRY(one_value(reading, node));
    bool given = tt_settings_is_set(reading->settings, "bf16"), half = tt_ascii_same(node->text, "fp16");
    if (tt_ascii_same(node->text, "bf16")) return set(reading, node, "bf16", "true");
    if (half && !given) return set(reading, node, "fp16", "true");
    if (half || tt_ascii_same(node->text, "no")) {
        /* The training arguments override this key in transformers, and their bf16 is on by default. */
        if (half || !given)
            tt_info("%s line %zu: mixed_precision '%s' has no effect: bf16 decides, which is on unless it is "
                    "set to false",
                    reading->origin, node->line, half ? "fp16" : "no");
        return TT_OK;
    }
    tt_status status = refuse(reading, node, TT_ERR_UNSUPPORTED, "is not supported");
    tt_hint("use bf16, or 'no' with bf16: false for float32");
    return status;
}

static tt_status take_fp16(const struct reading *reading, const struct key *key,
                           const struct tt_yaml_node *node)
{
    bool on;
    (void)key;
    TT_TRY(read_bool(reading, node, &on));
    return on ? set(reading, node, "fp16", "true") : TT_OK;
}

/* torch's CPUOffload: a boolean, or {offload_params: true}. */
static tt_status take_offload(const struct reading *reading, const struct key *key,
                              const struct tt_yaml_node *node)
{
    const struct tt_yaml_node *inner = tt_yaml_find(node, "offload_params");
    if (node->kind != TT_YAML_MAP) return take_setting(reading, key, node);
    if (inner == NULL || inner != node->first || inner->next != NULL)
        return refuse(reading, node, TT_ERR_USAGE, "is none of true, false and {offload_params: true}");
    return take_setting(reading, key, inner);
}

/* The compute type. */
static tt_status take_param_dtype(const struct reading *reading, const struct key *key,
                                  const struct tt_yaml_node *node)
{
    (void)key;
    TT_TRY(one_value(reading, node));
    tt_dtype type = tt_dtype_from_torch_name(node->text);
    if (type == TT_BF16 || type == TT_F32)
        return set(reading, node, "bf16", type == TT_BF16 ? "true" : "false");
    if (type == TT_F16) return set(reading, node, "fp16", "true");
    return refuse(reading, node, TT_ERR_UNSUPPORTED, "is not supported: use bfloat16 or float32");
}

static tt_status take_use_cpu(const struct reading *reading, const struct key *key,
                              const struct tt_yaml_node *node)
{
    bool on;
    (void)key;
    TT_TRY(read_bool(reading, node, &on));
    return on ? set(reading, node, "device", "cpu") : TT_OK;
}

/* accelerate's -1 means "not given". */
static tt_status take_count(const struct reading *reading, const struct key *key,
                            const struct tt_yaml_node *node)
{
    int64_t count;
    TT_TRY(one_value(reading, node));
    if (!tt_value_parse_int(node->text, &count))
        return refuse(reading, node, TT_ERR_USAGE, "is not a whole number");
    return count == -1 ? TT_OK : set(reading, node, key->argument, node->text);
}

/* Names of torch's ShardingStrategy in order of their numbers, from 1 (accelerate utils/constants.py). */
static const char *strategy_name(const char *text)
{
    static const char *const names[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                        "HYBRID_SHARD_ZERO2"};
    int64_t number;
    if (tt_value_parse_int(text, &number)) return number >= 1 && number <= 5 ? names[number - 1] : NULL;
    for (int i = 0; i < 5; i++)
        if (tt_ascii_same(text, names[i])) return names[i];
    return NULL;
}

static tt_status take_strategy(const struct reading *reading, const struct key *key,
                               const struct tt_yaml_node *node)
{
    (void)key;
    TT_TRY(one_value(reading, node));
    const char *name = strategy_name(node->text);
    if (name == NULL) {
        tt_status status = refuse(reading, node, TT_ERR_USAGE, "is not a sharding strategy");
        tt_hint("use FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2, or 1 to 5");
        return status;
    }
    if (strcmp(name, "HYBRID_SHARD_ZERO2") == 0) {
        tt_info("%s line %zu: HYBRID_SHARD_ZERO2 runs as HYBRID_SHARD, with the same results in less memory",
                reading->origin, node->line);
        name = "HYBRID_SHARD";
    }
    return set(reading, node, "sharding_strategy", name);
}

/* True means FULL_SHARD in version 2, and false SHARD_GRAD_OP (commands/to_fsdp2.py); in version 1 the value is the
 * name of a strategy. */
static tt_status take_reshard(const struct reading *reading, const struct key *key,
                              const struct tt_yaml_node *node)
{
    bool on;
    TT_TRY(one_value(reading, node));
    if (tt_yaml_find(reading->fsdp_map, "fsdp_sharding_strategy") != NULL ||
        tt_yaml_find(reading->fsdp_map, "sharding_strategy") != NULL)
        return TT_OK;
    if (strategy_name(node->text) != NULL && reading->fsdp_version == 1)
        return take_strategy(reading, key, node);
    TT_TRY(read_bool(reading, node, &on));
    return set(reading, node, "sharding_strategy", on ? "FULL_SHARD" : "SHARD_GRAD_OP");
}

static tt_status take_prefetch(const struct reading *reading, const struct key *key,
                               const struct tt_yaml_node *node)
{
    (void)key;
    TT_TRY(one_value(reading, node));
    if (reading->fsdp_version == 2) {
        tt_info("%s is accepted without effect: version 2 of FSDP decides it (%s line %zu)", node->key,
                reading->origin, node->line);
        return TT_OK;
    }
    return set(reading, node, "backward_prefetch", node->text);
}

static tt_status take_state_dict(const struct reading *reading, const struct key *key,
                                 const struct tt_yaml_node *node)
{
    static const char *const names[] = {"FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"};
    int64_t number;
    (void)key;
    TT_TRY(one_value(reading, node));
    const char *name = node->text;
    if (tt_value_parse_int(name, &number) && number >= 1 && number <= 3) name = names[number - 1];
    if (tt_ascii_same(name, "LOCAL_STATE_DICT")) {
        tt_info("%s line %zu: LOCAL_STATE_DICT is written as SHARDED_STATE_DICT, which any number of ranks "
                "can read",
                reading->origin, node->line);
        name = "SHARDED_STATE_DICT";
    }
    return set(reading, node, "state_dict_type", name);
}

static tt_status take_checkpointing(const struct reading *reading, const struct key *key,
                                    const struct tt_yaml_node *node)
{
    bool on;
    (void)key;
    TT_TRY(read_bool(reading, node, &on));
    /* `false` only means that FSDP does not do it: gradient_checkpointing of the training arguments decides. */
    return on ? set(reading, node, "gradient_checkpointing", "true") : TT_OK;
}

static tt_status take_version(const struct reading *reading, const struct key *key,
                              const struct tt_yaml_node *node)
{
    (void)key;
    if (reading->fsdp_version == 1 || reading->fsdp_version == 2) return TT_OK;
    return refuse(reading, node, TT_ERR_USAGE, "is not a version of FSDP: use 1 or 2");
}

static tt_status take_wrap_policy(const struct reading *reading, const struct key *key,
                                  const struct tt_yaml_node *node)
{
    TT_TRY(one_value(reading, node));
    if (tt_ascii_same(node->text, "TRANSFORMER_BASED_WRAP") || tt_ascii_same(node->text, "SIZE_BASED_WRAP") ||
        tt_ascii_same(node->text, "NO_WRAP"))
        return take_unneeded(reading, key, node);
    return refuse(reading, node, TT_ERR_USAGE,
                  "is none of TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP and NO_WRAP");
}

static tt_status take_policy(const struct reading *reading, const struct key *key,
                             const struct tt_yaml_node *node);

static const char *const every_block = "every transformer block is a unit";
static const char *const no_tpu = "it applies to TPUs only";

/* Keys of fsdp_config, without their prefix fsdp_. */
static const struct key fsdp_keys[] = {
    {"version", take_version, NULL},
    {"sharding_strategy", take_strategy, NULL},
    {"reshard_after_forward", take_reshard, NULL},
    {"backward_prefetch", take_prefetch, NULL},
    {"backward_prefetch_policy", take_prefetch, NULL},
    {"forward_prefetch", take_setting, "forward_prefetch"},
    {"state_dict_type", take_state_dict, NULL},
    {"activation_checkpointing", take_checkpointing, NULL},
    {"activation_checkpointing_offload", take_setting, "activation_offloading"},
    {"offload_params", take_setting, "offload_params"},
    {"cpu_offload", take_offload, "offload_params"},
    {"mixed_precision_policy", take_policy, NULL},
    {"param_dtype", take_param_dtype, NULL},
    {"reduce_dtype", take_setting, "reduce_dtype"},
    {"buffer_dtype", take_unneeded, "models have no buffers"},
    {"auto_wrap_policy", take_wrap_policy, every_block},
    {"transformer_layer_cls_to_wrap", take_unneeded, every_block},
    {"transformer_cls_names_to_wrap", take_unneeded, every_block},
    {"min_num_params", take_unneeded, every_block},
    {"use_orig_params", take_unneeded, "parameters keep their names and types in a shard"},
    {"cpu_ram_efficient_loading", take_unneeded, "each rank reads only its own bytes of the weights, always"},
    {"sync_module_states", take_unneeded, "each rank reads only its own bytes of the weights, always"},
    {"ignored_modules", take_unneeded, "every parameter belongs to a unit"},
    {"limit_all_gathers", take_setting, "limit_all_gathers"},
    {"xla", take_refused, "XLA devices are not supported"},
    {"xla_fsdp_v2", take_refused, "XLA devices are not supported"},
    {"xla_fsdp_grad_ckpt", take_refused, "XLA devices are not supported"},
    {"xla_fsdp_settings", take_refused, "XLA devices are not supported"},
    {NULL, NULL, NULL},
};

static const struct key parallelism_keys[] = {
    {"dp_replicate_size", take_unneeded, "num_machines sets the number of replicas of the model"},
    {"dp_shard_size", take_unneeded, "num_processes sets the number of ranks that share the model"},
    {"cp_backend", take_unneeded, "context parallelism is off"},
    {"cp_comm_strategy", take_unneeded, "context parallelism is off"},
    {"sp_backend", take_unneeded, "sequence parallelism is off"},
    {"sp_seq_length", take_unneeded, "sequence parallelism is off"},
    {"sp_seq_length_is_variable", take_unneeded, "sequence parallelism is off"},
    {"sp_attn_implementation", take_unneeded, "sequence parallelism is off"},
    {NULL, NULL, NULL},
};

static const struct key *find_key(const struct key *keys, const char *name)
{
    for (; keys->name != NULL; keys++)
        if (strcmp(keys->name, name) == 0) return keys;
    return NULL;
}

static tt_status unknown_key(const struct reading *reading, const struct key *keys,
                             const struct tt_yaml_node *node, const char *name, const char *prefix)
{
    const struct key *nearest = NULL;
    int distance = INT_MAX, here;
    for (const struct key *key = keys; key->name != NULL; key++) {
        if (!tt_name_is_near(key->name, name, &here) || here >= distance) continue;
        distance = here;
        nearest = key;
    }
    tt_status status = tt_fail(TT_ERR_USAGE, "%s line %zu: there is no key '%.100s'", reading->origin,
                               node->line, node->key);
    if (nearest != NULL) tt_hint("did you mean '%s%s'?", prefix, nearest->name);
    return status;
}

/* Handles every entry of `map` by its key; nulls are ignored. Names may have `prefix`. */
static tt_status take_map(const struct reading *reading, const struct key *keys,
                          const struct tt_yaml_node *map, const char *prefix)
{
    for (const struct tt_yaml_node *node = map->first; node != NULL; node = node->next) {
        const char *name = tt_starts_with(node->key, prefix) ? node->key + strlen(prefix) : node->key;
        const struct key *key = find_key(keys, name);
        if (key == NULL) return unknown_key(reading, keys, node, name, prefix);
        if (tt_yaml_is_null(node)) continue;
        TT_TRY(key->take(reading, key, node));
    }
    return TT_OK;
}

static tt_status check_map(const struct reading *reading, const struct tt_yaml_node *node)
{
    if (node->kind == TT_YAML_MAP) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%s line %zu: '%s' takes lines of 'key: value'", reading->origin, node->line,
                   node->key != NULL ? node->key : "fsdp_config");
}

/* MixedPrecision: one type for all, or a mapping of the three. */
static tt_status take_policy(const struct reading *reading, const struct key *key,
                             const struct tt_yaml_node *node)
{
    static const char *const types[] = {"param_dtype", "reduce_dtype", "buffer_dtype"};
    if (node->kind != TT_YAML_MAP) return take_param_dtype(reading, key, node);
    for (const struct tt_yaml_node *child = node->first; child != NULL; child = child->next) {
        bool known = false;
        for (size_t i = 0; i < 3; i++) known |= strcmp(child->key, types[i]) == 0;
        if (!known && strcmp(child->key, "cast_forward_inputs") != 0)
            return refuse(reading, child, TT_ERR_USAGE,
                          "is none of param_dtype, reduce_dtype and buffer_dtype");
        const struct key *known_key = find_key(fsdp_keys, child->key);
        if (known_key == NULL || tt_yaml_is_null(child)) continue;
        TT_TRY(known_key->take(reading, known_key, child));
    }
    return TT_OK;
}

/* transformers reads fsdp_config as version 2 unless it has a key `version`. Older files have no such key, but keys
 * that version 2 lacks: they are version 1. */
static bool has_version_1_keys(const struct tt_yaml_node *map)
{
    static const char *const old[] = {"sharding_strategy", "backward_prefetch", "backward_prefetch_policy",
                                      "forward_prefetch",  "use_orig_params",   "sync_module_states",
                                      "limit_all_gathers"};
    for (const struct tt_yaml_node *node = map->first; node != NULL; node = node->next) {
        const char *name = tt_starts_with(node->key, "fsdp_") ? node->key + 5 : node->key;
        bool truth;
        for (size_t i = 0; i < sizeof old / sizeof *old; i++)
            if (strcmp(name, old[i]) == 0) return true;
        if (strcmp(name, "reshard_after_forward") == 0 && node->text != NULL &&
            strategy_name(node->text) != NULL && !tt_value_parse_bool(node->text, &truth))
            return true;
    }
    return false;
}

static tt_status take_fsdp_map(const struct reading *reading, const struct tt_yaml_node *map)
{
    struct reading inner = *reading;
    const struct tt_yaml_node *version = tt_yaml_find(map, "fsdp_version");
    if (version == NULL) version = tt_yaml_find(map, "version");
    inner.fsdp_map = map;
    if (version != NULL && !tt_yaml_is_null(version) &&
        (version->kind != TT_YAML_SCALAR || !tt_value_parse_int(version->text, &inner.fsdp_version)))
        return refuse(reading, version, TT_ERR_USAGE, "is not a version of FSDP: use 1 or 2");
    if (version == NULL && has_version_1_keys(map)) inner.fsdp_version = 1;
    return take_map(&inner, fsdp_keys, map, "fsdp_");
}

static tt_status take_fsdp_config(const struct reading *reading, const struct key *key,
                                  const struct tt_yaml_node *node)
{
    (void)key;
    TT_TRY(check_map(reading, node));
    if (reading->is_fsdp) return take_fsdp_map(reading, node);
    if (node->first != NULL)
        tt_info("fsdp_config is ignored: distributed_type is not FSDP (%s line %zu)", reading->origin,
                node->line);
    return TT_OK;
}

static tt_status take_parallelism(const struct reading *reading, const struct key *key,
                                  const struct tt_yaml_node *node)
{
    static const char *const sizes[] = {"tp_size", "cp_size", "sp_size"};
    static const char *const prefix = "parallelism_config_";
    struct tt_yaml_node others = {.kind = TT_YAML_MAP};
    (void)key;
    TT_TRY(check_map(reading, node));
    for (const struct tt_yaml_node *child = node->first; child != NULL; child = child->next) {
        const char *name = tt_starts_with(child->key, prefix) ? child->key + strlen(prefix) : child->key;
        bool is_size = false;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) is_size |= strcmp(name, sizes[i]) == 0;
        struct tt_yaml_node alone = *child;
        alone.next = NULL;
        others.first = &alone;
        if (!is_size)
            TT_TRY(take_map(reading, parallelism_keys, &others, prefix));
        else if (child->kind != TT_YAML_SCALAR || strcmp(child->text, "1") != 0)
            return refuse(reading, child, TT_ERR_UNSUPPORTED,
                          "is not supported: ranks split only data and weights");
    }
    return TT_OK;
}

static const struct key top_keys[] = {
    {"compute_environment", take_environment, NULL},
    {"distributed_type", take_distributed_type, NULL},
    {"mixed_precision", take_mixed_precision, NULL},
    {"fp16", take_fp16, NULL},
    {"use_cpu", take_use_cpu, NULL},
    {"num_processes", take_count, "num_processes"},
    {"num_machines", take_count, "num_machines"},
    {"machine_rank", take_count, "machine_rank"},
    {"main_process_ip", take_setting, "main_process_ip"},
    {"main_process_port", take_setting, "main_process_port"},
    {"fsdp_config", take_fsdp_config, NULL},
    {"parallelism_config", take_parallelism, NULL},
    {"deepspeed_config", take_refused, "use distributed_type FSDP, which corresponds to ZeRO stage 3"},
    {"megatron_lm_config", take_refused, "use distributed_type FSDP"},
    {"fp8_config", take_refused, "use mixed_precision bf16"},
    {"debug", take_unneeded_if_on, "operations between ranks are always checked"},
    {"main_training_function", take_unneeded, "there is no Python function to call"},
    {"rdzv_backend", take_unneeded, "machines connect to main_process_ip"},
    {"same_network", take_unneeded, "machines connect to main_process_ip"},
    {"gpu_ids", take_unneeded, "CUDA_VISIBLE_DEVICES selects the GPUs"},
    {"enable_cpu_affinity", take_unneeded_if_on, "threads of a rank are placed by the operating system"},
    {"downcast_bf16", take_unneeded_if_on, no_tpu},
    {"tpu_name", take_unneeded, no_tpu},
    {"tpu_zone", take_unneeded, no_tpu},
    {"tpu_use_cluster", take_unneeded_if_on, no_tpu},
    {"tpu_use_sudo", take_unneeded_if_on, no_tpu},
    {"tpu_vm", take_unneeded, no_tpu},
    {"tpu_env", take_unneeded, no_tpu},
    {"command_file", take_unneeded, no_tpu},
    {"commands", take_unneeded, no_tpu},
    {"dynamo_config", take_unneeded, "kernels are compiled before the run, not during it"},
    {"dynamo_backend", take_unneeded, "kernels are compiled before the run, not during it"},
    {"mpirun_config", take_unneeded, "mpirun is started by the user"},
    {NULL, NULL, NULL},
};

/* The keys of fsdp_config are on its own level in a file that was copied without its indentation. They are moved below
 * it. */
static void move_fsdp_keys(const struct reading *reading, struct tt_yaml_node *root,
                           struct tt_yaml_node *fsdp)
{
    struct tt_yaml_node **last = &fsdp->first;
    const struct tt_yaml_node *first_moved = NULL;
    while (*last != NULL) last = &(*last)->next;
    for (struct tt_yaml_node **link = &root->first; *link != NULL;) {
        struct tt_yaml_node *node = *link;
        if (!tt_starts_with(node->key, "fsdp_") || find_key(fsdp_keys, node->key + 5) == NULL) {
            link = &node->next;
            continue;
        }
        if (first_moved == NULL) first_moved = node;
        *link = node->next;
        node->next = NULL;
        *last = node;
        last = &node->next;
    }
    if (first_moved != NULL)
        tt_info("%s line %zu: %s and other keys of its kind are read as keys of fsdp_config", reading->origin,
                first_moved->line, first_moved->key);
}

static tt_status take_file(struct reading *reading, const struct tt_yaml *yaml)
{
    struct tt_yaml_node moved = {.kind = TT_YAML_MAP, .key = "fsdp_config"};
    if (yaml->root == NULL || yaml->root->kind != TT_YAML_MAP)
        return tt_fail(TT_ERR_USAGE, "%s has no 'key: value' lines", yaml->origin);
    const struct tt_yaml_node *type = tt_yaml_find(yaml->root, "distributed_type");
    if (type == NULL) {
        tt_status status = tt_fail(TT_ERR_USAGE, "%s has no distributed_type", yaml->origin);
        tt_hint("this must be accelerate's file; the settings of the run belong in the file of --config");
        return status;
    }
    reading->is_fsdp = type->kind == TT_YAML_SCALAR && tt_ascii_same(type->text, "FSDP");
    struct tt_yaml_node *fsdp = (struct tt_yaml_node *)tt_yaml_find(yaml->root, "fsdp_config");
    if (fsdp != NULL && tt_yaml_is_null(fsdp)) fsdp->kind = TT_YAML_MAP, fsdp->text = NULL;
    if (fsdp == NULL || fsdp->kind == TT_YAML_MAP)
        move_fsdp_keys(reading, yaml->root, fsdp != NULL ? fsdp : &moved);
    TT_TRY(take_map(reading, top_keys, yaml->root, ""));
    return moved.first != NULL ? take_fsdp_config(reading, NULL, &moved) : TT_OK;
}

tt_status tt_accelerate_read(const char *path, struct tt_settings *settings)
{
    struct tt_yaml yaml;
    struct reading reading = {.settings = settings, .origin = path, .fsdp_version = 1};
    tt_status status = tt_yaml_read(path, &yaml);
    if (status == TT_OK) {
        status = take_file(&reading, &yaml);
        tt_yaml_deinit(&yaml);
    }
    if (status != TT_OK) tt_while("reading accelerate's configuration '%s'", path);
    return status;
}

tt_status tt_fsdp_config_apply(const char *text_or_path, struct tt_settings *settings)
{
    struct tt_yaml yaml;
    bool is_text = text_or_path[0] == '{';
    const char *origin = is_text ? "fsdp_config" : text_or_path;
    /* transformers' default is version 2 (training_args.py _process_fsdp_args). */
    struct reading reading = {
        .settings = settings, .origin = origin, .alias = "fsdp_config", .fsdp_version = 2, .is_fsdp = true};
    if (is_text)
        TT_TRY(tt_yaml_parse(text_or_path, strlen(text_or_path), origin, &yaml));
    else
        TT_TRY(tt_yaml_read(text_or_path, &yaml));
    tt_status status = yaml.root != NULL ? check_map(&reading, yaml.root) : TT_OK;
    if (status == TT_OK && yaml.root != NULL) status = take_fsdp_map(&reading, yaml.root);
    tt_yaml_deinit(&yaml);
    return status;
}
