/* Writing of safetensors headers: the reference library's header, byte for byte. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/safetensors_types.h"

static int type_order(const struct tt_safetensors_entry *entry)
{
    const struct tt_safetensors_type *type = tt_safetensors_type_find(tt_dtype_name(entry->dtype));
    return type != NULL ? type->order : -1;
}

static int compare_entries(const void *a, const void *b)
{
    const struct tt_safetensors_entry *x = a, *y = b;
    int x_order = type_order(x), y_order = type_order(y);
    if (x_order != y_order) return x_order > y_order ? -1 : 1;
    return strcmp(x->name, y->name);
}

static tt_status check_distinct(const struct tt_safetensors_entry *entries, size_t count)
{
    const char **names = tt_calloc(count, sizeof *names);
    if (names == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) names[i] = entries[i].name;
    qsort(names, count, sizeof *names, tt_compare_texts);
    tt_status status = TT_OK;
    for (size_t i = 1; i < count && status == TT_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = tt_fail(TT_ERR_DATA, "two tensors to be saved have the name '%s'", names[i]);
        }
    }
    tt_free(names);
    return status;
}

/* serde_json's rule: only quote, backslash and control characters are escaped. */
static tt_status append_name(struct tt_str *json, const char *name)
{
    TT_TRY(tt_str_append_char(json, '"'));
    for (; *name != '\0'; name++) {
        unsigned char c = (unsigned char)*name;
        if (c == '"' || c == '\\') {
            TT_TRY(tt_str_printf(json, "\\%c", c));
        } else if (c < 0x20) {
            TT_TRY(tt_str_printf(json, "\\u%04x", c));
        } else {
            TT_TRY(tt_str_append_char(json, (char)c));
        }
    }
    return tt_str_append_char(json, '"');
}

/* Offsets count from the start of the data, because the length of the header is still unknown. */
static tt_status append_entry(struct tt_str *json, const struct tt_safetensors_entry *entry)
{
    TT_TRY(tt_str_append_char(json, ','));
    TT_TRY(append_name(json, entry->name));
    TT_TRY(tt_str_printf(json, ":{\"dtype\":\"%s\",\"shape\":[", tt_dtype_name(entry->dtype)));
    for (int i = 0; i < entry->rank; i++) {
        TT_TRY(tt_str_printf(json, "%s%lld", i > 0 ? "," : "", (long long)entry->dims[i]));
    }
    return tt_str_printf(json, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)entry->offset,
                         (unsigned long long)(entry->offset + entry->bytes));
}

static tt_status measure(struct tt_safetensors_entry *entry)
{
    uint64_t bytes = tt_dtype_bytes(entry->dtype);
    bool fits = bytes > 0 && entry->rank >= 0 && entry->rank <= TT_SAFETENSORS_RANK_MAX;
    for (int i = 0; fits && i < entry->rank; i++) {
        fits = entry->dims[i] >= 0 && !__builtin_mul_overflow(bytes, (uint64_t)entry->dims[i], &bytes);
    }
    if (!fits || bytes > INT64_MAX)
        return tt_fail(TT_ERR_INTERNAL, "tensor '%s' cannot be laid out", entry->name);
    entry->bytes = bytes;
    strncpy(entry->dtype_name, tt_dtype_name(entry->dtype), sizeof entry->dtype_name - 1);
    return TT_OK;
}

tt_status tt_safetensors_layout(struct tt_safetensors_entry *entries, size_t count, struct tt_str *header,
                                uint64_t *file_bytes)
{
    tt_status status = TT_OK;
    struct tt_str json = {0};
    uint64_t at = 0;
    TT_GO(check_distinct(entries, count));
    if (count > 1) qsort(entries, count, sizeof *entries, compare_entries);
    TT_GO(tt_str_append_text(&json, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (size_t i = 0; i < count; i++) {
        TT_GO(measure(&entries[i]));
        entries[i].offset = at;
        at += entries[i].bytes;
        if (at > INT64_MAX) TT_GO(tt_fail(TT_ERR_INTERNAL, "tensors of more bytes than a file can hold"));
        TT_GO(append_entry(&json, &entries[i]));
    }
    TT_GO(tt_str_append_char(&json, '}'));
    while (json.bytes % 8 != 0) TT_GO(tt_str_append_char(&json, ' '));
    char size[8];
    for (int i = 0; i < 8; i++) size[i] = (char)(json.bytes >> (8 * i));
    TT_GO(tt_str_append(header, size, sizeof size));
    TT_GO(tt_str_append(header, json.data, json.bytes));
    for (size_t i = 0; i < count; i++) entries[i].offset += sizeof size + json.bytes;
    *file_bytes = at + sizeof size + json.bytes;
out:
    tt_str_deinit(&json);
    return status;
}
