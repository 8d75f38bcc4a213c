#include "model/new_rows.h"

#include <string.h>

#include "base/file.h"
#include "base/integer.h"
#include "base/number.h"
#include "base/str.h"
#include "io/text_part.h"
#include "model/adapter_config.h"

/* How PEFT names a table of the base, by what wraps its module; the last two may be tables that an adapter trains. */
static const char *const wrappers[] = {".original_module.weight",
                                       ".token_adapter.base_layer.weight",
                                       ".token_adapter.base_layer.original_module.weight",
                                       ".base_layer.weight",
                                       ".weight",
                                       ".modules_to_save.weight"};

static const char *table_name(const struct tt_model_facts *facts, int table)
{
    return table == 0 ? tt_model_table_name(facts) : TT_MODEL_HEAD_NAME;
}

/* A matrix whose name ends with that of the table's module and the wrapper: what is before them differs where a text
 * model is a part of a folder. */
static const struct tt_safetensors_entry *find_copy(const struct tt_safetensors *file, int table,
                                                    const char *wrapper)
{
    char end[128];
    (void)tt_snprintf(end, sizeof end, ".%s%s", table == 0 ? TT_MODEL_EMBEDDING : TT_MODEL_HEAD, wrapper);
    for (size_t i = 0; i < tt_safetensors_count(file); i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, i);
        if (entry->rank == 2 && tt_ends_with(entry->name, end)) return entry;
    }
    return NULL;
}

static void find_copies(struct tt_new_rows *rows)
{
    for (int t = 0; t < TT_GROWN_TABLES; t++)
        for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers && rows->copies[t] == NULL; w++)
            rows->copies[t] = find_copy(rows->adapter, t, wrappers[w]);
    for (int t = 0; t < TT_GROWN_TABLES; t++)
        if (rows->copies[t] != NULL) rows->count = tt_larger(rows->count, rows->copies[t]->dims[0]);
    for (int t = 0; t < TT_GROWN_TABLES; t++)
        if (rows->copies[t] != NULL && rows->copies[t]->dims[0] != rows->count) rows->copies[t] = NULL;
}

static int64_t largest_id(const struct tt_json_value *list)
{
    int64_t largest = -1;
    for (size_t i = 0; tt_json_is_list(list) && i < tt_json_count(list); i++)
        if (tt_json_is_integer(tt_json_at(list, i)))
            largest = tt_larger(largest, tt_json_integer(tt_json_at(list, i)));
    return largest;
}

/* One more than the largest id in trainable_token_indices. */
static tt_status count_trained(const char *adapter, int64_t *count)
{
    struct tt_path path;
    struct tt_json json = {0};
    const char *key;
    const struct tt_json_value *value;
    TT_TRY(tt_path_set(&path, adapter, "adapter_config.json"));
    if (!tt_path_exists(path.text)) return TT_OK;
    tt_status status = tt_json_read(path.text, (size_t)16 << 20, &json);
    value = tt_json_get(json.root, "trainable_token_indices");
    *count = tt_larger(*count, largest_id(value) + 1);
    if (tt_json_is_object(value)) {
        const struct tt_json_value *object = value;
        for (size_t member = 0; tt_json_next_member(object, &member, &key, &value);)
            *count = tt_larger(*count, largest_id(value) + 1);
    }
    tt_json_deinit(&json);
    return status;
}

tt_status tt_new_rows_of_adapter(const char *adapter, int64_t tokens, struct tt_new_rows *rows)
{
    enum { MOST = 1 << 24 };
    struct tt_path path;
    TT_TRY(tt_path_set(&path, adapter, "adapter_config.json"));
    if (!tt_path_exists(path.text) || tt_adapter_weights_open(adapter, &rows->adapter) != TT_OK) {
        tt_error_clear(); /* whoever opens the adapter says so */
        return TT_OK;
    }
    find_copies(rows);
    if (rows->count == 0) {
        int64_t trained = 0;
        if (count_trained(adapter, &trained) != TT_OK) tt_error_clear();
        rows->count = tt_larger(tokens, trained <= MOST ? trained : 0);
    }
    return TT_OK;
}

tt_status tt_new_rows_grow(struct tt_model_facts *facts, const struct tt_new_rows *rows,
                           struct tt_model_folder *folder)
{
    struct tt_growth growth = {.rows = rows->count};
    if (facts->fixed_vocab)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "new tokens in a model of type '%s', whose layers have tables by tokens too",
                       facts->model_type);
    for (int t = 0; t < TT_GROWN_TABLES; t++)
        growth.tables[t] = (struct tt_grown_table){table_name(facts, t), rows->adapter, rows->copies[t]};
    if (folder != NULL) TT_TRY(tt_model_folder_grow(folder, &growth));
    facts->grown_from = facts->vocab_size;
    facts->vocab_size = rows->count;
    return TT_OK;
}

void tt_new_rows_describe(const struct tt_model_facts *facts, struct tt_json_value *config)
{
    static const char key[] = "vocab_size";
    const struct tt_json_value *text = tt_json_get(config, "text_config");
    if (text == NULL || tt_json_get(config, key) != NULL)
        tt_json_set(config, key, tt_json_new_integer(facts->vocab_size));
    if (tt_json_get(text, key) == NULL) return;
    struct tt_json_value *copy = tt_json_copy(text);
    tt_json_set(copy, key, tt_json_new_integer(facts->vocab_size));
    tt_json_set(config, "text_config", copy);
}

void tt_new_rows_close(struct tt_new_rows *rows)
{
    tt_safetensors_close(rows->adapter);
    *rows = (struct tt_new_rows){0};
}
