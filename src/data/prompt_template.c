#include "data/prompt_template.h"

#include <string.h>

/* One piece of a template: literal text, or the name of a field. */
struct piece {
    struct tt_span text;
    bool field;
};

/* Parses one piece at *at; false at the end. A lone brace gives a field with data == NULL. */
static bool next_piece(const char **at, struct piece *piece)
{
    const char *start = *at;
    if (*start == '\0') return false;
    if (start[0] == '{' && start[1] != '{') {
        const char *end = strpbrk(start + 1, "{}");
        bool closed = end != NULL && *end == '}' && end > start + 1;
        *piece = (struct piece){{closed ? start + 1 : NULL, closed ? (size_t)(end - start - 1) : 0}, true};
        *at = closed ? end + 1 : start + strlen(start);
        return true;
    }
    if (start[0] == '{' || start[0] == '}') {
        bool doubled = start[1] == start[0];
        *piece = (struct piece){{doubled ? start : NULL, doubled ? 1 : 0}, !doubled};
        *at = start + (doubled ? 2 : 1);
        return true;
    }
    size_t bytes = strcspn(start, "{}");
    *piece = (struct piece){{start, bytes}, false};
    *at = start + bytes;
    return true;
}

tt_status tt_prompt_template_check(const char *text)
{
    struct piece piece;
    for (const char *at = text; next_piece(&at, &piece);) {
        if (!piece.field || piece.text.data != NULL) continue;
        tt_fail(TT_ERR_USAGE, "prompt_template '%s' has a brace without a {field}", text);
        tt_hint("write {{ or }} for a brace");
        return TT_ERR_USAGE;
    }
    return TT_OK;
}

tt_status tt_prompt_template_fields(const char *text, tt_prompt_template_field *field, void *context)
{
    struct piece piece;
    for (const char *at = text; next_piece(&at, &piece);)
        if (piece.field && piece.text.data != NULL) TT_TRY(field(context, piece.text));
    return TT_OK;
}

static tt_status append_field(const struct tt_json_value *row, struct tt_span name, struct tt_str *prompt)
{
    struct tt_str key = {0};
    tt_status status = TT_OK;
    TT_GO(tt_str_append(&key, name.data, name.bytes));
    const struct tt_json_value *value = tt_json_get(row, key.data);
    if (tt_json_is_string(value)) {
        TT_GO(tt_str_append(prompt, tt_json_span(value).data, tt_json_span(value).bytes));
    } else if (tt_json_is_number(value) || tt_json_is_bool(value)) {
        TT_GO(tt_json_write(value, 0, false, prompt));
    } else {
        TT_GO(tt_fail(TT_ERR_DATA, "the row %s '%s', which prompt_template names",
                      value == NULL ? "has no field" : "has no text in its field", key.data));
    }
out:
    tt_str_deinit(&key);
    return status;
}

tt_status tt_prompt_template_render(const char *text, const struct tt_json_value *row, struct tt_str *prompt)
{
    struct piece piece;
    for (const char *at = text; next_piece(&at, &piece);) {
        if (piece.field) {
            if (piece.text.data != NULL) TT_TRY(append_field(row, piece.text, prompt));
        } else {
            TT_TRY(tt_str_append(prompt, piece.text.data, piece.text.bytes));
        }
    }
    return TT_OK;
}
