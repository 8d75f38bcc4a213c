/* The keys of a GGUF file: of the architecture, its rotations, the model card. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/log.h"
#include "base/number.h"
#include "convert/card.h"
#include "convert/gguf_export_impl.h"
#include "convert/templates.h"
#include "model/family.h"

enum { QUANTIZATION_VERSION = 2, FILE_TYPE_F32 = 0, FILE_TYPE_F16 = 1, FILE_TYPE_BF16 = 32 };

tt_status gguf_refuse(const char *what, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "GGUF cannot express %s", what);
    if (hint != NULL) tt_hint("%s", hint);
    return status;
}

static tt_status put_u32(struct gguf_export *export, const char *key, int64_t value)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", export->architecture->name, key);
    return tt_gguf_put_u32(&export->header, name, value);
}

static tt_status put_f32(struct gguf_export *export, const char *key, double value)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", export->architecture->name, key);
    return tt_gguf_put_f32(&export->header, name, value);
}

static tt_status put_text(struct gguf_export *export, const char *key, const char *text)
{
    return tt_gguf_put_string(&export->header, key, tt_span_of(text));
}

/* Readers multiply scores by (a (0.1 m ln(factor) + 1))^2, and cos and sin by a: attn_factor times what m makes, which
 * is 1 for DeepSeek V3, and is to be 1 (deepseek2.cpp, llama-context.cpp). yarn_log_multiplier is a tenth of m. */
static tt_status put_yarn_of_scores(struct gguf_export *export, const struct tt_rope *rope)
{
    double m = export->architecture->yarn_scores(export->facts), log_factor = 0.1 * log(rope->factor);
    double usual = m == 0                             ? log_factor + 1
                   : export->architecture->yarn_apart ? (log_factor + 1) / (m * log_factor + 1)
                                                      : 1;
    if (m != 0) TT_TRY(put_f32(export, "rope.scaling.yarn_log_multiplier", 0.1 * m));
    if (rope->factor <= 1 || fabs(usual - 1) <= 1e-6) return TT_OK;
    return put_f32(export, "rope.scaling.attn_factor", 1 / usual);
}

/* Most architectures have the betas 32 and 1 whatever the keys say. Readers multiply cos and sin by 0.1 ln(factor) + 1
 * and by attn_factor; where they read m = yarn_log_multiplier, by (0.1 ln(factor) + 1) / (0.1 m ln(factor) + 1) instead
 * (llama-context.cpp), which makes 1 of m = 1. */
static tt_status put_yarn(struct gguf_export *export, const struct tt_rope *rope)
{
    double usual = rope->factor > 1 ? 0.1 * log(rope->factor) + 1.0 : 1.0;
    bool own_betas = rope->beta_fast != 32 || rope->beta_slow != 1;
    if (!rope->truncate && !export->architecture->untruncated)
        return gguf_refuse("yarn with truncate false", NULL);
    if (!rope->truncate)
        tt_notice("readers of the file round the borders of yarn, which this model does not (truncate)");
    if (own_betas && !export->architecture->yarn_keys)
        return gguf_refuse(
            "a beta_fast of yarn other than 32, or a beta_slow other than 1, for this model type", NULL);
    TT_TRY(put_u32(export, "rope.scaling.original_context_length", rope->original_max_position));
    TT_TRY(put_f32(export, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    TT_TRY(put_f32(export, "rope.scaling.yarn_beta_slow", rope->beta_slow));
    if (export->architecture->yarn_scores != NULL) return put_yarn_of_scores(export, rope);
    if (export->architecture->yarn_keys && rope->attention_factor == 1)
        return put_f32(export, "rope.scaling.yarn_log_multiplier", 1);
    if (fabs(rope->attention_factor - usual) <= 1e-6) return TT_OK;
    return put_f32(export, "rope.scaling.attn_factor", rope->attention_factor / usual);
}

static tt_status put_rope(struct gguf_export *export)
{
    const struct tt_rope *rope = &export->facts->ropes[0];
    char name[64];
    if (export->facts->rope_count == 0) return TT_OK;
    TT_TRY(put_u32(export, "rope.dimension_count", rope->columns));
    TT_TRY(put_f32(export, "rope.freq_base", rope->theta));
    bool yarn = rope->type == TT_ROPE_YARN;
    if (!yarn && rope->type != TT_ROPE_LINEAR) return TT_OK;
    (void)snprintf(name, sizeof name, "%s.rope.scaling.type", export->architecture->name);
    TT_TRY(put_text(export, name, yarn ? "yarn" : "linear"));
    TT_TRY(put_f32(export, "rope.scaling.factor", rope->factor));
    return yarn ? put_yarn(export, rope) : TT_OK;
}

/* The name of the folder, not of the file, which may be a link to another place. */
static tt_status name_of(const struct gguf_export *export, char *name, size_t name_bytes)
{
    char *folder = export->options->adapter_only ? tt_merge_adapter_folder(export->merge)
                                                 : tt_strdup(tt_model_folder_path(export->merge->folder));
    if (folder == NULL) return TT_ERR_MEMORY;
    struct tt_path real;
    name[0] = '\0';
    if (tt_path_real(folder, &real) == 0) (void)tt_hub_name_of(real.text, name, name_bytes);
    tt_free(folder);
    return TT_OK;
}

/* Elements of all tensors, as gguf-py counts them: less than 0 for an adapter. */
static int64_t count_parameters(const struct gguf_export *export)
{
    int64_t count = 0;
    for (size_t i = 0; i < export->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &export->merge->tensors[i];
        if (!export->options->adapter_only)
            count += tensor->rows * tensor->columns;
        else if (tensor->lora_A != NULL)
            count -= tensor->r * (tensor->rows + tensor->columns);
    }
    return count;
}

/* Keys from the model card. An adapter's card describes the merged model too, and takes from the base's
 * only what it does not have itself of license and languages. */
static tt_status put_card(struct gguf_export *export)
{
    char name[256];
    tt_status status = TT_OK;
    struct tt_card adapter = {0}, base = {0};
    char *folder = NULL;
    TT_GO(name_of(export, name, sizeof name));
    if (export->merge->adapter != NULL) {
        folder = tt_merge_adapter_folder(export->merge);
        if (folder == NULL) TT_GO(TT_ERR_MEMORY);
        TT_GO(tt_card_read(folder, &adapter));
    }
    if (!export->options->adapter_only)
        TT_GO(tt_card_read(tt_model_folder_path(export->merge->folder), &base));
    bool own = adapter.yaml.root != NULL || export->options->adapter_only;
    TT_GO(tt_gguf_put_card(&export->header, own ? &adapter : &base, &base, name, count_parameters(export)));
out:
    tt_card_deinit(&adapter);
    tt_card_deinit(&base);
    tt_free(folder);
    return status;
}

static tt_status put_templates(struct gguf_export *export)
{
    struct tt_chat_files files = {0};
    bool of_adapter = false;
    tt_status status = tt_templates_load(export->merge, &files, &of_adapter);
    if (status == TT_OK) status = tt_gguf_put_templates(&export->header, &files);
    tt_chat_files_deinit(&files);
    return status;
}

static tt_status put_list(struct gguf_export *export, const char *name, const struct tt_gguf_key *key)
{
    int32_t of_layers[TT_MODEL_LAYERS_MAX];
    const int32_t *list = key->list != NULL ? key->list : of_layers;
    size_t count = key->list != NULL ? key->count : (size_t) export->facts->num_hidden_layers;
    for (size_t i = 0; key->list == NULL && i < count; i++)
        of_layers[i] = key->of_layer(export->facts, (int64_t)i);
    return key->type == TT_GGUF_KEY_BOOLS ? tt_gguf_put_bools(&export->header, name, list, count)
                                          : tt_gguf_put_i32s(&export->header, name, list, count);
}

static tt_status put_key(struct gguf_export *export, const struct tt_gguf_key *key)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", export->architecture->name, key->key);
    switch (key->type) {
    case TT_GGUF_KEY_U32:
        return tt_gguf_put_u32(&export->header, name, (int64_t)key->value);
    case TT_GGUF_KEY_F32:
        return tt_gguf_put_f32(&export->header, name, key->value);
    case TT_GGUF_KEY_BOOL:
        return tt_gguf_put_bool(&export->header, name, key->value != 0);
    case TT_GGUF_KEY_I32S:
    case TT_GGUF_KEY_BOOLS:
        return put_list(export, name, key);
    }
    return tt_fail(TT_ERR_INTERNAL, "'%s' has no type", name);
}

static tt_status put_family_keys(struct gguf_export *export)
{
    export->architecture->add_keys(export->facts, &export->keys);
    for (int i = 0; i < export->keys.count; i++) TT_TRY(put_key(export, &export->keys.items[i]));
    return put_rope(export);
}

int64_t gguf_number_of(const struct gguf_export *export, const char *name)
{
    for (int i = 0; i < export->keys.count; i++) {
        const struct tt_gguf_key *key = &export->keys.items[i];
        if (strcmp(key->key, name) != 0) continue;
        if (key->list != NULL) return key->list[0];
        return key->of_layer != NULL ? key->of_layer(export->facts, 0) : (int64_t)key->value;
    }
    return 0;
}

tt_status gguf_put_model_keys(struct gguf_export *export)
{
    const struct tt_gguf_mixture *mixture = export->options->mixture;
    int file_type = mixture != NULL           ? (int)mixture->file_type
                    : export->dtype == TT_F32 ? FILE_TYPE_F32
                    : export->dtype == TT_F16 ? FILE_TYPE_F16
                                              : FILE_TYPE_BF16;
    TT_TRY(put_text(export, "general.architecture", export->architecture->name));
    TT_TRY(put_text(export, "general.type", "model"));
    TT_TRY(put_card(export));
    TT_TRY(tt_gguf_put_u32(&export->header, "general.file_type", file_type));
    TT_TRY(tt_gguf_put_u32(&export->header, "general.quantization_version", QUANTIZATION_VERSION));
    TT_TRY(put_family_keys(export));
    if (export->merge->own_tokenizer) {
        tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "the adapter has a tokenizer with tokens of its own");
        tt_hint("merge it first (trimtab merge), and export the result");
        return status;
    }
    TT_TRY(
        tt_gguf_put_tokenizer(&export->header, tt_model_folder_path(export->merge->folder), export->facts));
    return put_templates(export);
}

tt_status gguf_put_adapter_keys(struct gguf_export *export)
{
    TT_TRY(put_text(export, "general.architecture", export->architecture->name));
    TT_TRY(put_text(export, "general.type", "adapter"));
    TT_TRY(put_card(export));
    TT_TRY(put_text(export, "adapter.type", "lora"));
    return tt_gguf_put_f32(&export->header, "adapter.lora.alpha", export->alpha);
}
