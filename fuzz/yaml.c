/* Configuration text: the settings of a training run, and transformers' fsdp_config. Accepted settings must be
 * the same when the resolved file is read. */
/* links: tt_job */
/* words: src/job/accelerate.c src/job/settings.c src/data/settings.c src/config/value.c */
#include <stdint.h>

#include "settings.h"

enum { KEYS_COMPARED = 100 }; /* of a mapping */

/* The limits include the expansion of aliases and merge keys, and no key occurs twice. */
static size_t check_tree(const struct tt_yaml_node *node, int depth)
{
    size_t count = 1, place = 0;
    if (depth > TT_YAML_DEPTH_MAX) abort();
    for (const struct tt_yaml_node *child = node->first; child != NULL; child = child->next) {
        if (place++ < KEYS_COMPARED && node->kind == TT_YAML_MAP && tt_yaml_find(node, child->key) != child)
            abort();
        count += check_tree(child, depth + 1);
    }
    return count;
}

static void check_limits(const uint8_t *data, size_t bytes)
{
    struct tt_yaml yaml;
    if (tt_yaml_parse((const char *)data, bytes, "fuzz", &yaml) != TT_OK) return;
    if (yaml.root != NULL && check_tree(yaml.root, 0) > TT_YAML_NODES_MAX) abort();
    tt_yaml_deinit(&yaml);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_settings settings;
    check_limits(data, bytes);
    fuzz_settings_init(&settings);
    if (tt_settings_parse_yaml(&settings.store, (const char *)data, bytes, "fuzz") == TT_OK) {
        if (settings.config.shard.fsdp_config == NULL || settings.config.shard.fsdp_config[0] == '{')
            (void)!tt_train_resolve(&settings.store, &settings.config);
        fuzz_settings_check_round_trip(&settings);
    }
    fuzz_settings_deinit(&settings);
    return 0;
}
