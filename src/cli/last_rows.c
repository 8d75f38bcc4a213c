#include "cli/last_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEP_WIDTH = 9 };

void tt_last_rows_add(struct tt_last_rows *last, const struct tt_log_row *row)
{
    struct tt_last_row *kept = &last->rows[last->next];
    last->next = (last->next + 1) % TT_LAST_ROWS;
    if (last->count < TT_LAST_ROWS) last->count++;
    *kept = (struct tt_last_row){.step = (long long)row->step};
    for (int i = 0; i < row->field_count && kept->count < TT_LAST_FIELDS; i++) {
        struct tt_last_field *field = &kept->fields[kept->count];
        if (strcmp(row->fields[i].name, "step") == 0 || strlen(row->fields[i].name) >= sizeof field->name)
            continue;
        snprintf(field->name, sizeof field->name, "%s", row->fields[i].name);
        field->value = row->fields[i].value;
        kept->count++;
    }
}

const char *tt_last_rows_value(double value, char *text, size_t text_bytes)
{
    double size = fabs(value);
    bool whole = value == floor(value) && size < 1e15;
    snprintf(text, text_bytes,
             whole || (size >= 1000 && size < 1e15) ? "%.0f"
             : size >= 1e-3 && size < 1e15          ? "%.4f"
                                                    : "%.3g",
             value);
    return text;
}

static int field_width(const char *name)
{
    int width = (int)strlen(name);
    return width < 8 ? 8 : width;
}

static tt_status append_row(const struct tt_last_row *row, const struct tt_last_row *newest, int columns,
                            struct tt_str *text)
{
    char value[40];
    int width = STEP_WIDTH;
    TT_TRY(tt_str_printf(text, "%*lld", STEP_WIDTH, row->step));
    for (int i = 0; i < newest->count; i++) {
        int own = field_width(newest->fields[i].name);
        if ((width += 2 + own) > columns) break;
        snprintf(value, sizeof value, "-");
        for (int j = 0; j < row->count; j++)
            if (strcmp(row->fields[j].name, newest->fields[i].name) == 0)
                tt_last_rows_value(row->fields[j].value, value, sizeof value);
        TT_TRY(tt_str_printf(text, "  %*s", own, value));
    }
    return tt_str_append_char(text, '\n');
}

tt_status tt_last_rows_take(struct tt_last_rows *last, int columns, struct tt_str *text)
{
    int count = last->count, width = STEP_WIDTH;
    last->count = 0;
    if (count == 0) return TT_OK;
    const struct tt_last_row *newest = &last->rows[(last->next + TT_LAST_ROWS - 1) % TT_LAST_ROWS];
    TT_TRY(tt_str_printf(text, "%*s", STEP_WIDTH, "step"));
    for (int i = 0; i < newest->count; i++) {
        if ((width += 2 + field_width(newest->fields[i].name)) > columns) break;
        TT_TRY(tt_str_printf(text, "  %*s", field_width(newest->fields[i].name), newest->fields[i].name));
    }
    TT_TRY(tt_str_append_char(text, '\n'));
    for (int i = count; i > 0; i--)
        TT_TRY(
            append_row(&last->rows[(last->next + TT_LAST_ROWS - i) % TT_LAST_ROWS], newest, columns, text));
    return TT_OK;
}
