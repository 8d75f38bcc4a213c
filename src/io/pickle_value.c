/* Access to the values of a pickle. */
#include <string.h>

#include "base/alloc.h"
#include "io/pickle.h"

void tt_pickle_deinit(struct tt_pickle *pickle)
{
    tt_arena_deinit(&pickle->arena);
    tt_free(pickle->stored);
    *pickle = (struct tt_pickle){0};
}

bool tt_pickle_is_global(const struct tt_pickle_value *value, const char *module, const char *name)
{
    return value != NULL && value->kind == TT_PICKLE_GLOBAL && strcmp(value->global.module, module) == 0 &&
           strcmp(value->global.name, name) == 0;
}

const char *tt_pickle_text(const struct tt_pickle_value *value)
{
    bool is_text = value != NULL && value->kind == TT_PICKLE_TEXT;
    return is_text && strlen(value->text.data) == value->text.bytes ? value->text.data : NULL;
}

const struct tt_pickle_value *tt_pickle_at(const struct tt_pickle_value *value, uint32_t index)
{
    bool has = value != NULL && value->kind == TT_PICKLE_LIST && index < value->list.count;
    return has ? value->list.items[index] : NULL;
}

const struct tt_pickle_value *tt_pickle_get(const struct tt_pickle_value *dict, const char *key)
{
    if (dict == NULL || dict->kind != TT_PICKLE_DICT) return NULL;
    for (uint32_t i = dict->list.count; i >= 2; i -= 2) {
        const char *text = tt_pickle_text(dict->list.items[i - 2]);
        if (text != NULL && strcmp(text, key) == 0) return dict->list.items[i - 1];
    }
    return NULL;
}
