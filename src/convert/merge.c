#include "convert/merge.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/number.h"
#include "checkpoint/unread.h"
#include "io/labels.h"
#include "model/adapter_config.h"
#include "model/new_rows.h"
#include "model/quantization.h"
#include "model/scores.h"
#include "tensor/format.h"
#include "text/new_tokens.h"

void tt_merge_close(struct tt_merge *merge)
{
    tt_free(merge->tensors);
    tt_name_index_deinit(&merge->index);
    tt_model_destroy(merge->model);
    tt_safetensors_close(merge->adapter);
    tt_model_folder_close(merge->folder);
    tt_arena_deinit(&merge->arena);
    *merge = (struct tt_merge){0};
}

/* The folder of the adapter; owned. */
static tt_status find_adapter(struct tt_merge *merge, const char *name, struct tt_lora_config *lora,
                              char **folder)
{
    struct tt_path config;
    TT_TRY(tt_hub_locate(name, NULL, "adapter", folder));
    TT_TRY(tt_path_set(&config, *folder, "adapter_config.json"));
    if (!tt_path_is_dir(*folder)) return tt_fail(TT_ERR_DATA, "the adapter folder '%s' is a file", *folder);
    if (!tt_path_exists(config.text)) {
        tt_status status =
            tt_fail(TT_ERR_DATA, "'%s' is not an adapter: it has no adapter_config.json", *folder);
        tt_hint("a PEFT folder holds adapter_config.json and adapter_model.safetensors");
        return status;
    }
    return tt_adapter_config_read(*folder, &merge->arena, lora);
}

/* An adapter of a model with scores has their weight. */
static tt_status read_facts(struct tt_merge *merge, const char *adapter, const struct tt_lora_config *lora,
                            struct tt_model_facts *facts)
{
    struct tt_scores scores = {.wanted = lora->classifies};
    if (!scores.wanted) return tt_model_facts_of_folder(merge->folder, facts);
    struct tt_safetensors *file = NULL;
    TT_TRY(tt_adapter_weights_open(adapter, &file));
    const struct tt_safetensors_entry *entry =
        tt_safetensors_find(file, "base_model.model." TT_MODEL_SCORE ".weight");
    if (entry != NULL && entry->rank == 2) scores.labels = entry->dims[0];
    tt_safetensors_close(file);
    return tt_model_facts_for(merge->folder, &scores, facts);
}

/* Opens the adapter `name`, if there is one, and reads the facts of the model that it makes of the base. */
static tt_status open_adapter(struct tt_merge *merge, const char *name, struct tt_model_facts *facts,
                              struct tt_lora_config *lora)
{
    tt_status status = TT_OK;
    char *folder = NULL;
    if (name == NULL) return tt_model_facts_of_folder(merge->folder, facts);
    TT_GO(find_adapter(merge, name, lora, &folder));
    TT_GO(read_facts(merge, folder, lora, facts));
    TT_GO(tt_adapter_config_check(lora, facts));
    TT_GO(tt_adapter_open_for(folder, facts, lora, &merge->adapter));
out:
    if (status != TT_OK) tt_while("opening the adapter '%s'", name);
    tt_free(folder);
    return status;
}

/* Tokens that the adapter's tokenizer has and the base's lacks, and rows for them. */
static tt_status open_new_tokens(struct tt_merge *merge, struct tt_model_facts *facts)
{
    tt_status status = TT_OK;
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_new_rows rows = {0};
    char *folder = merge->adapter != NULL ? tt_merge_adapter_folder(merge) : NULL;
    if (merge->adapter == NULL) return TT_OK;
    if (folder == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_new_tokens_of_folder(folder, tt_model_folder_path(merge->folder), &tokenizer));
    merge->own_tokenizer = tokenizer != NULL;
    if (merge->own_tokenizer) TT_GO(tt_model_folder_check_copied(folder, false));
    TT_GO(tt_new_rows_of_adapter(folder, tokenizer != NULL ? tt_tokenizer_vocab_size(tokenizer) : 0, &rows));
    if (rows.count > facts->vocab_size) TT_GO(tt_new_rows_grow(facts, &rows, merge->folder));
out:
    tt_new_rows_close(&rows);
    tt_tokenizer_destroy(tokenizer);
    tt_free(folder);
    return status;
}

static tt_status find_in_adapter(const struct tt_merge *merge, const char *param_name, bool may_lack,
                                 const struct tt_safetensors_entry **entry)
{
    char *key = tt_adapter_key(param_name);
    if (key == NULL) return TT_ERR_MEMORY;
    *entry = tt_safetensors_find(merge->adapter, key);
    tt_free(key);
    if (*entry != NULL || may_lack) return TT_OK;
    return tt_fail(TT_ERR_DATA, "the adapter has no tensor for '%s'", param_name);
}

/* Sets dtype and, for weights quantized by bitsandbytes, `quantized`. Its int8 does not store the original type:
 * config.json's is used. */
static tt_status find_type(struct tt_merge *merge, const char *source, struct tt_merge_tensor *tensor)
{
    struct tt_quantized found = {0};
    tensor->dtype = tensor->base->dtype;
    if (merge->model->options.quant.type != TT_QUANT_NONE && tensor->rank == 2)
        TT_TRY(tt_quantized_find(merge->folder, source, &found));
    if (found.layout.format.type == TT_QUANT_NONE) return TT_OK;
    struct tt_quantized *kept = tt_arena_alloc(&merge->arena, sizeof *kept);
    if (kept == NULL) return TT_ERR_MEMORY;
    *kept = found;
    tt_dtype configured = merge->model->facts.dtype;
    bool forgets = !tt_weight_format(found.layout.format.type)->has_state && configured != TT_DTYPE_NONE;
    tensor->quantized = kept;
    tensor->dtype = forgets ? configured : found.dtype;
    merge->quantized = true;
    return TT_OK;
}

/* Rows are those of all matrices where there are several. */
static void set_dims(struct tt_merge_tensor *tensor, const int64_t *dims)
{
    tensor->rows = tensor->columns = 1;
    for (int d = 0; d < tensor->rank; d++) {
        tensor->dims[d] = dims[d];
        *(d > 0 && d == tensor->rank - 1 ? &tensor->columns : &tensor->rows) *= dims[d];
    }
}

static tt_status add_tensor(struct tt_merge *merge, const tt_param *param, const char *name)
{
    const char *source = tt_model_source_name(merge->model, param);
    struct tt_merge_tensor tensor = {
        .name = name,
        .stored = name,
        .base = tt_model_folder_find(merge->folder, source),
        .rank = param->rank,
    };
    set_dims(&tensor, param->dims);
    /* modules_to_save are only compared with the base, which may lack them. */
    if (param->adapter) TT_TRY(find_in_adapter(merge, param->name, param->bias, &tensor.saved));
    bool made = tensor.base == NULL && tensor.saved != NULL && merge->model->facts.new_scores;
    if (made) {
        tt_dtype configured = merge->model->facts.dtype;
        tensor.dtype = configured != TT_DTYPE_NONE ? configured : tensor.saved->dtype;
        TT_TRY(tt_name_index_add(&merge->index, name, merge->count));
        merge->tensors[merge->count++] = tensor;
        return TT_OK;
    }
    if (tensor.base == NULL)
        return tt_fail(TT_ERR_DATA, "'%s' has no tensor '%s'", tt_model_folder_path(merge->folder), source);
    if (strcmp(source, name) == 0) tensor.stored = tt_model_folder_spelling(merge->folder, name);
    TT_TRY(find_type(merge, source, &tensor));
    TT_TRY(tt_name_index_add(&merge->index, name, merge->count));
    merge->tensors[merge->count++] = tensor;
    return TT_OK;
}

static tt_status add_lora(void *context, const struct tt_model_linear *linear)
{
    struct tt_merge *merge = context;
    const struct tt_model *model = merge->model;
    if (linear->r == 0) return TT_OK;
    /* Only a tied head has a weight of another name: the embedding's. */
    bool shared = strcmp(linear->weight->name, model->embedding_name) == 0;
    const char *name = shared ? model->head_name : linear->weight->name;
    size_t index;
    if (shared) {
        TT_TRY(add_tensor(merge, linear->weight, name));
        merge->unties = true;
    }
    if (!tt_name_index_find(&merge->index, name, &index))
        return tt_fail(TT_ERR_INTERNAL, "'%s' is not listed", name);
    struct tt_merge_tensor *tensor = &merge->tensors[index];
    TT_TRY(find_in_adapter(merge, linear->lora_A->name, false, &tensor->lora_A));
    TT_TRY(find_in_adapter(merge, linear->lora_B->name, false, &tensor->lora_B));
    if (linear->vector != NULL)
        TT_TRY(find_in_adapter(merge, linear->vector->name, false, &tensor->magnitude));
    tensor->scaling = linear->scaling;
    tensor->r = linear->r;
    tensor->experts = linear->experts;
    return TT_OK;
}

/* The rows of tokens that an adapter has apart from a table: of a head that is one with the embeddings, but has other
 * tokens, it makes a table of its own. */
static tt_status add_trained(struct tt_merge *merge, const tt_param *param)
{
    char name[512];
    size_t index;
    int bytes = (int)(strlen(param->name) - strlen(TT_MODEL_TOKEN_ROWS));
    (void)tt_snprintf(name, sizeof name, "%.*s.weight", bytes, param->name);
    if (!tt_name_index_find(&merge->index, name, &index)) {
        TT_TRY(add_tensor(merge, param->rows_of, merge->model->head_name));
        merge->unties = true;
        index = merge->count - 1;
    }
    struct tt_merge_tensor *tensor = &merge->tensors[index];
    tensor->tokens = param->tokens;
    tensor->token_count = param->dims[0];
    return find_in_adapter(merge, param->name, false, &tensor->trained);
}

/* The tensors of other parts follow those of the text model. */
static void add_left_alone(struct tt_merge *merge)
{
    for (size_t i = 0; i < tt_model_folder_tensor_count(merge->folder); i++) {
        const char *name = tt_model_folder_tensor_name(merge->folder, i);
        if (!tt_text_part_leaves(merge->model->facts.part, name)) continue;
        const struct tt_safetensors_entry *base = tt_model_folder_tensor(merge->folder, i);
        struct tt_merge_tensor tensor = {.name = name,
                                         .stored = base->name,
                                         .left_alone = true,
                                         .base = base,
                                         .dtype = base->dtype,
                                         .rank = base->rank};
        set_dims(&tensor, base->dims);
        merge->tensors[merge->count++] = tensor;
    }
}

static tt_status list_tensors(struct tt_merge *merge)
{
    const struct tt_model *model = merge->model;
    size_t most = model->param_count + tt_model_folder_left_alone(merge->folder) + 1;
    merge->tensors = tt_calloc(most, sizeof *merge->tensors);
    if (merge->tensors == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < model->param_count; i++)
        if (tt_model_source_name(model, model->params[i]) != NULL)
            TT_TRY(add_tensor(merge, model->params[i], model->params[i]->name));
    merge->unties = model->facts.tie_word_embeddings && !tt_model_is_tied(model);
    TT_TRY(tt_model_visit_linears(model, add_lora, merge));
    for (size_t i = 0; i < model->param_count; i++)
        if (model->params[i]->rows_of != NULL) TT_TRY(add_trained(merge, model->params[i]));
    add_left_alone(merge);
    return TT_OK;
}

tt_status tt_merge_open(const char *base, const char *adapter, struct tt_merge *merge)
{
    tt_status status = TT_OK;
    struct tt_model_facts *config = tt_calloc(1, sizeof *config);
    struct tt_model_options options = {.compute_dtype = TT_F32};
    *merge = (struct tt_merge){0};
    if (config == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_model_folder_open(base, true, &merge->folder));
    TT_GO(open_adapter(merge, adapter, config, &options.lora));
    TT_GO(tt_model_folder_join(merge->folder, &config->sources));
    TT_GO(open_new_tokens(merge, config));
    TT_GO(tt_quantization_inspect(merge->folder, &merge->arena, config));
    TT_GO(tt_tied_head_inspect(merge->folder, config));
    merge->quantized = tt_quant_is_compressed(config->stored_quant); /* also where experts alone are */
    TT_GO(tt_quantization_resolve(&(struct tt_quantization_config){0}, config, TT_F32, &options.quant));
    TT_GO(tt_model_create(config, &options, &merge->model));
    struct tt_load_source source = {.folder = merge->folder, .adapter = merge->adapter};
    TT_GO(tt_load_check(merge->model, &source));
    TT_GO(list_tensors(merge));
out:
    if (status != TT_OK && adapter != NULL) tt_while("matching the adapter '%s' to '%s'", adapter, base);
    if (status != TT_OK) tt_merge_close(merge);
    tt_free(config);
    return status;
}

tt_status tt_merge_name_labels(struct tt_merge *merge, const char *names)
{
    struct tt_labels labels;
    struct tt_model_facts *facts = &merge->model->facts;
    TT_TRY(tt_labels_parse(names, "id2label", &labels));
    int64_t count = labels.count;
    tt_labels_deinit(&labels);
    facts->label_names = names;
    if (count == facts->label_count) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "id2label has %lld names, and the model scores of %lld labels",
                   (long long)count, (long long)facts->label_count);
}

void tt_merge_change_add(struct tt_merge_change *sum, const struct tt_merge_change *more)
{
    sum->largest = fmax(sum->largest, more->largest);
    sum->squares += more->squares;
    sum->base_squares += more->base_squares;
    sum->rounding_squares += more->rounding_squares;
    sum->count += more->count;
}

double tt_merge_change_rms(const struct tt_merge_change *change)
{
    return change->count > 0 ? sqrt(change->squares / (double)change->count) : 0.0;
}

char *tt_merge_adapter_folder(const struct tt_merge *merge)
{
    const char *path = tt_safetensors_path(merge->adapter), *name = tt_path_basename(path);
    return name == path ? tt_strdup(".") : tt_strndup(path, (size_t)(name - path));
}
