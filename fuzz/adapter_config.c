/* adapter_config.json of a PEFT folder: a file that parses is applied to a model, or refused. */
/* links: tt_model */
#include <stdint.h>
#include <stdlib.h>

#include "model/adapter_config.h"

static const char model_json[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 16, "
    "\"intermediate_size\": 32, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 64, "
    "\"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", "
    "\"tie_word_embeddings\": false}";

static void read_model(struct tt_model_facts *config)
{
    struct tt_json json = {0};
    if (tt_json_parse(model_json, sizeof model_json - 1, "config.json", &json) != TT_OK) abort();
    if (tt_model_facts_parse(&json, config) != TT_OK) abort();
    tt_json_deinit(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tt_model_facts config;
    if (config.num_hidden_layers == 0) read_model(&config);
    struct tt_json json = {0};
    struct tt_arena arena = {0};
    struct tt_model_options options = {.compute_dtype = TT_F32};
    struct tt_model *model = NULL;
    if (tt_json_parse((const char *)data, size, "adapter_config.json", &json) == TT_OK &&
        tt_adapter_config_parse(&json, &arena, &options.lora) == TT_OK &&
        tt_model_create(&config, &options, &model) == TT_OK) {
        struct tt_str text = {0};
        if (tt_adapter_config_write(model, "base", &text) != TT_OK) abort();
        struct tt_json again = {0};
        struct tt_lora_config lora = {0};
        if (tt_json_parse(tt_str_text(&text), text.bytes, "written", &again) != TT_OK ||
            tt_adapter_config_parse(&again, &arena, &lora) != TT_OK || lora.r != options.lora.r)
            abort();
        tt_json_deinit(&again);
        tt_str_deinit(&text);
    }
    tt_model_destroy(model);
    tt_arena_deinit(&arena);
    tt_json_deinit(&json);
    return 0;
}
