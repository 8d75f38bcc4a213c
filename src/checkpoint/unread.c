#include "checkpoint/unread.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/str.h"
#include "checkpoint/base_copies.h"
#include "io/tensor_compare.h"
#include "model/adapter_config.h"
#include "model/family.h"
#include "model/module.h"

static const char head_name[] = TT_MODEL_HEAD_NAME;

/* ---- Comparing ---- */

static bool has_shape_of(const struct tt_safetensors_entry *a, const struct tt_safetensors_entry *b)
{
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return true;
}

/* The slices of the ranks of `share`; tensors of another shape differ in element 0. */
static tt_status compare(const struct tt_stored_tensor *a, const struct tt_stored_tensor *b,
                         const struct tt_compare_share *share, int64_t *at)
{
    int64_t count = tt_safetensors_elements(a->entry), first = 0, end = count;
    *at = 0;
    if (!has_shape_of(a->entry, b->entry)) return TT_OK;
    if (!tt_dtype_is_float(a->entry->dtype) || !tt_dtype_is_float(b->entry->dtype)) return TT_OK;
    if (share->all > 0) {
        first = count / share->all * share->first;
        end = share->first + share->count == share->all ? count
                                                        : count / share->all * (share->first + share->count);
    }
    return tt_stored_compare(a, b, first, end - first, at);
}

static bool find_stored(const struct tt_model_folder *folder, const char *name, struct tt_stored_tensor *out)
{
    *out = (struct tt_stored_tensor){.entry = folder != NULL ? tt_model_folder_find(folder, name) : NULL};
    if (out->entry != NULL) out->file = tt_model_folder_file(folder, out->entry);
    return out->file != NULL;
}

/* ---- The head of tied embeddings ---- */

tt_status tt_tied_head_compare(const struct tt_model_folder *folder, const struct tt_compare_share *share,
                               const struct tt_model_facts *facts, bool *differs)
{
    struct tt_stored_tensor table, head;
    int64_t at;
    *differs = false;
    if (!facts->tie_word_embeddings || !find_stored(folder, tt_model_table_name(facts), &table)) return TT_OK;
    if (!find_stored(folder, head_name, &head)) return TT_OK;
    TT_TRY(compare(&table, &head, share, &at));
    /* rows of new tokens are drawn for each table: what the files have decides */
    bool stored = facts->grown_from == 0 || at < facts->grown_from * facts->hidden_size;
    *differs = at >= 0 && stored;
    return TT_OK;
}

void tt_tied_head_settle(const struct tt_model_folder *folder, bool differs, struct tt_model_facts *facts)
{
    struct tt_stored_tensor tensor;
    facts->head_settled = true;
    if (!facts->tie_word_embeddings) return;
    if (differs) {
        facts->tie_word_embeddings = false;
        facts->own_head = true;
        tt_warn("'%s': tie_word_embeddings is true, but '%s' differs from '%s': the model has two "
                "tables, as in transformers",
                tt_model_folder_path(folder), head_name, tt_model_table_name(facts));
    }
    facts->table_in_head = !differs && !find_stored(folder, tt_model_table_name(facts), &tensor) &&
                           find_stored(folder, head_name, &tensor);
}

tt_status tt_tied_head_inspect(const struct tt_model_folder *folder, struct tt_model_facts *facts)
{
    bool differs;
    TT_TRY(tt_tied_head_compare(folder, &(struct tt_compare_share){0}, facts, &differs));
    tt_tied_head_settle(folder, differs, facts);
    return TT_OK;
}

/* ---- Tensors of a folder ---- */

struct unread {
    const struct tt_model *model;
    const struct tt_load_source *source;
    const char *name;
    struct tt_stored_tensor tensor;
};

static bool is_rotation(const struct unread *unread)
{
    return tt_module_is_buffer(unread->name);
}

/* The frequency that turns by the angle of position 1. Rounded to 16 bits, it is right to 1 in 128. */
static bool is_frequency(const struct tt_rope *rope, int64_t index, float stored, tt_dtype dtype,
                         const float *cos_PE, const float *sin_PE)
{
    int64_t half = rope->columns / 2;
    double tolerance = dtype == TT_F32 || dtype == TT_F64 ? 1e-4 : 1.0 / 128;
    double scaled = atan2((double)sin_PE[half + index], (double)cos_PE[half + index]);
    double plain = pow(rope->theta, -(double)(2 * index) / (double)rope->columns);
    double smallest = 1e-6; /* half precision has no smaller ones */
    return fabs((double)stored - scaled) <= tolerance * scaled + smallest ||
           fabs((double)stored - plain) <= tolerance * plain + smallest;
}

static bool has_frequencies(const struct tt_rope *rope, const float *stored, int64_t count, tt_dtype dtype,
                            float *tables)
{
    int64_t half = rope->columns / 2;
    if (count != half) return false;
    const struct tt_rope_parts parts = {.count = 1, .ends = {2}, .rows = 2};
    tt_model_fill_rope(rope, &parts, tables, tables + 2 * half);
    for (int64_t i = 0; i < count; i++)
        if (!is_frequency(rope, i, stored[i], dtype, tables, tables + 2 * half)) return false;
    return true;
}

/* Old versions of transformers saved the frequencies; all versions since compute them from config.json, and so does
 * this program. */
static tt_status check_rotation(const struct unread *unread)
{
    enum { MOST = 4096 };
    const struct tt_model_facts *facts = &unread->model->facts;
    int64_t count = tt_safetensors_elements(unread->tensor.entry);
    bool known = false;
    if (count > MOST) return tt_fail(TT_ERR_DATA, "'%s' has %" PRId64 " numbers", unread->name, count);
    float *stored = tt_calloc(5 * MOST, sizeof *stored);
    if (stored == NULL) return TT_ERR_MEMORY;
    tt_status status =
        tt_safetensors_read(unread->tensor.file, unread->tensor.entry, 0, count, stored, TT_F32);
    for (int r = 0; r < facts->rope_count && status == TT_OK; r++)
        known |= facts->ropes[r].type == TT_ROPE_LONGROPE || /* has several */
                 has_frequencies(&facts->ropes[r], stored, count, unread->tensor.entry->dtype, stored + MOST);
    tt_free(stored);
    if (status == TT_OK && !known)
        tt_warn("'%s' holds other frequencies than those of config.json, which are used, as in transformers",
                unread->name);
    return status;
}

/* kv_cache_scheme of compressed-tensors. */
static bool is_cache_scale(const struct unread *unread)
{
    bool named = tt_ends_with(unread->name, ".k_scale") || tt_ends_with(unread->name, ".v_scale");
    return named && tt_quant_is_compressed(unread->model->facts.stored_quant);
}

static tt_status check_cache_scale(const struct unread *unread)
{
    float scale = 0;
    const struct tt_safetensors_entry *entry = unread->tensor.entry;
    if (tt_safetensors_elements(entry) == 1)
        TT_TRY(tt_safetensors_read(unread->tensor.file, entry, 0, 1, &scale, TT_F32));
    if (scale > 0 && isfinite(scale)) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%s' is not the scale of a cache, one positive number", unread->name);
}

static bool is_tied_head(const struct unread *unread)
{
    return unread->model->facts.tie_word_embeddings && strcmp(unread->name, head_name) == 0;
}

/* Whoever opens the folder has compared the two; where nobody has, the head must be equal. */
static tt_status check_tied_head(const struct unread *unread)
{
    bool differs;
    const struct tt_load_source *source = unread->source;
    if (unread->model->facts.head_settled) return TT_OK;
    TT_TRY(tt_tied_head_compare(source->folder, &source->share, &unread->model->facts, &differs));
    if (!differs) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%s' differs from '%s', though config.json has tie_word_embeddings true",
                   head_name, tt_model_table_name(&unread->model->facts));
}

/* A head with scores takes the place of lm_head. */
static bool is_replaced_head(const struct unread *unread)
{
    return unread->model->facts.new_scores && strcmp(unread->name, head_name) == 0;
}

/* ---- Tensors of an adapter ---- */

/* "a.b.weight" of "a.b.base_layer.weight"; false: `given` does not end so. */
static bool drop_wrapper(const char *given, const char *wrapper, char *name, size_t bytes)
{
    if (!tt_ends_with(given, wrapper)) return false;
    (void)snprintf(name, bytes, "%.*s.weight", (int)(strlen(given) - strlen(wrapper)), given);
    return true;
}

/* The base's tensor of which an adapter's key has a copy, or NULL. PEFT saves the layer under an adapter of the head,
 * and with save_embedding_layers embeddings and head, those that it trains too. */
static const char *copied_name(const struct unread *unread, char *name, size_t bytes)
{
    const struct tt_model *model = unread->model;
    const char *given;
    if (!tt_adapter_key_path(unread->name, &given)) return NULL;
    bool original;
    tt_base_copy_param(given, name, bytes, &original);
    const tt_param *param = tt_model_find_param(model, name);
    if (param != NULL) return param->adapter != original ? NULL : tt_model_source_name(model, param);
    bool head = model->facts.tie_word_embeddings && strcmp(name, head_name) == 0;
    return !head || tt_model_saves_table_twice(model) ? NULL
           : model->facts.table_in_head               ? head_name
                                                      : tt_model_table_name(&model->facts);
}

static bool is_base_copy(const struct unread *unread)
{
    char name[512];
    return copied_name(unread, name, sizeof name) != NULL;
}

static tt_status fail_differs(const struct unread *unread, const char *from, const char *whose, int64_t at)
{
    tt_status status =
        tt_fail(TT_ERR_DATA, "'%s' of the adapter differs from '%s' of the %s in element %" PRId64,
                unread->name, from, whose, at);
    tt_hint(
        "the adapter was made over other weights; in Python, "
        "PeftModel.from_pretrained(base, folder).merge_and_unload() makes one model of both, whose folder "
        "is read");
    return status;
}

static tt_status check_base_copy(const struct unread *unread)
{
    char text[512];
    struct tt_stored_tensor base;
    int64_t at = 0;
    const char *name = copied_name(unread, text, sizeof text);
    if (name == NULL) return TT_ERR_INTERNAL;
    if (find_stored(unread->source->folder, name, &base))
        TT_TRY(compare(&unread->tensor, &base, &unread->source->share, &at));
    const struct tt_model_facts *facts = &unread->model->facts;
    /* The base has the new rows from here. */
    bool new_row = facts->grown_from > 0 && at >= facts->grown_from * facts->hidden_size;
    return at < 0 || new_row ? TT_OK : fail_differs(unread, name, "model", at);
}

/* A tensor that modules_to_save trained, once more under PEFT's name of the module that wraps it. */
static bool is_wrapped_copy(const struct unread *unread)
{
    char name[512];
    const char *given;
    if (!tt_adapter_key_path(unread->name, &given)) return false;
    if (!drop_wrapper(given, ".modules_to_save.weight", name, sizeof name)) return false;
    const tt_param *param = tt_model_find_param(unread->model, name);
    return param != NULL && param->adapter;
}

static tt_status check_own_copy(const struct unread *unread, const char *name)
{
    int64_t at = 0;
    char *key = tt_adapter_key(name);
    if (key == NULL) return TT_ERR_MEMORY;
    struct tt_stored_tensor own = {unread->tensor.file, tt_safetensors_find(unread->tensor.file, key)};
    tt_free(key);
    if (own.entry != NULL) TT_TRY(compare(&unread->tensor, &own, &unread->source->share, &at));
    return at < 0 ? TT_OK : fail_differs(unread, name, "adapter, which it repeats,", at);
}

static tt_status check_wrapped_copy(const struct unread *unread)
{
    char name[512] = "";
    const char *given;
    (void)tt_adapter_key_path(unread->name, &given);
    (void)drop_wrapper(given, ".modules_to_save.weight", name, sizeof name);
    return check_own_copy(unread, name);
}

static bool is_shared_head(const struct unread *unread)
{
    const char *name;
    return tt_adapter_key_path(unread->name, &name) && strcmp(name, head_name) == 0 &&
           tt_model_saves_table_twice(unread->model);
}

static tt_status check_shared_head(const struct unread *unread)
{
    return check_own_copy(unread, tt_model_table_name(&unread->model->facts));
}

/* The rows of tokens of a table that both share, once more under the head's name. */
static bool is_shared_rows(const struct unread *unread)
{
    const char *name;
    return tt_adapter_key_path(unread->name, &name) && strcmp(name, TT_MODEL_HEAD TT_MODEL_TOKEN_ROWS) == 0 &&
           tt_model_find_param(unread->model, name) == NULL;
}

static tt_status check_shared_rows(const struct unread *unread)
{
    char name[512];
    const char *table = tt_model_table_name(&unread->model->facts);
    (void)tt_snprintf(name, sizeof name, "%.*s" TT_MODEL_TOKEN_ROWS, (int)(strlen(table) - strlen(".weight")),
                      table);
    return check_own_copy(unread, name);
}

/* Keys and values of a layer that reads those of another: published folders may have them, nobody reads them. */
static bool is_unused_keys(const struct unread *unread)
{
    const struct tt_model_facts *facts = &unread->model->facts;
    const char *below = strstr(unread->name, ".layers.");
    char module[8];
    int layer;
    if (below == NULL || sscanf(below, ".layers.%d.self_attn.%7[a-z_].", &layer, module) != 2) return false;
    if (layer < 0 || layer >= facts->num_hidden_layers || facts->layers[layer].keys_back == 0) return false;
    return strcmp(module, "k_proj") == 0 || strcmp(module, "v_proj") == 0 || strcmp(module, "k_norm") == 0;
}

/* A layer that predicts the token behind the next one; published folders have one. */
static bool is_further_layer(const struct unread *unread)
{
    const struct tt_model_facts *facts = &unread->model->facts;
    int layer;
    if (!facts->family->predicts_further) return false;
    if (tt_starts_with(unread->name, "mtp.")) return true;
    return sscanf(unread->name, "model.layers.%d.", &layer) == 1 && layer == facts->num_hidden_layers;
}

/* ---- The tables ---- */

/* Nothing can be wrong with such a tensor. */
static tt_status accept(const struct unread *unread)
{
    (void)unread;
    return TT_OK;
}

struct kind {
    bool (*is)(const struct unread *unread);
    tt_status (*check)(const struct unread *unread);
};

static const struct kind of_folder[] = {
    {is_tied_head, check_tied_head}, {is_rotation, check_rotation}, {is_cache_scale, check_cache_scale},
    {is_further_layer, accept},      {is_unused_keys, accept},      {is_replaced_head, accept}};
static const struct kind of_adapter[] = {{is_base_copy, check_base_copy},
                                         {is_wrapped_copy, check_wrapped_copy},
                                         {is_shared_rows, check_shared_rows},
                                         {is_shared_head, check_shared_head}};

static tt_status look(const struct kind *kinds, size_t count, const struct unread *unread, bool *found)
{
    *found = false;
    for (size_t i = 0; i < count && !*found; i++) {
        if (!kinds[i].is(unread)) continue;
        *found = true;
        return kinds[i].check(unread);
    }
    return TT_OK;
}

tt_status tt_unread_of_folder(const struct tt_model *model, const struct tt_load_source *source,
                              const char *name, bool *found)
{
    struct unread unread = {.model = model, .source = source, .name = name};
    if (!find_stored(source->folder, name, &unread.tensor)) return TT_ERR_INTERNAL;
    return look(of_folder, sizeof of_folder / sizeof *of_folder, &unread, found);
}

tt_status tt_unread_of_adapter(const struct tt_model *model, const struct tt_load_source *source,
                               const char *key, bool *found)
{
    struct unread unread = {.model = model, .source = source, .name = key};
    unread.tensor = (struct tt_stored_tensor){source->adapter, tt_safetensors_find(source->adapter, key)};
    return look(of_adapter, sizeof of_adapter / sizeof *of_adapter, &unread, found);
}
