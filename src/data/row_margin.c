/* Rows with a preference and perhaps the margin by which the chosen answer is to lead, as TRL 1.16's reward trainer
 * reads them. The margin is the value of both samples; a row without has 0. */
#include <math.h>

#include "data/row_reader_impl.h"

static tt_status read_margin(struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const struct tt_json_value *margin = tt_json_get(row, "margin");
    double value = tt_json_number(margin);
    reader->pair.margin = (float)value;
    if (margin == NULL || tt_json_is_null(margin)) return TT_OK;
    if (tt_json_is_number(margin) && isfinite(value)) return TT_OK;
    return tt_row_fail(reader, TT_ERR_DATA, "'margin' is no finite number");
}

static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    TT_TRY(read_margin(reader, row));
    TT_TRY(tt_row_pair.read(reader, row, out));
    out->value = reader->pair.margin;
    return TT_OK;
}

static tt_status next(struct tt_row_reader *reader, struct tt_row *out)
{
    TT_TRY(tt_row_pair.next(reader, out));
    out->value = reader->pair.margin;
    return TT_OK;
}

static const char *const members[] = {"margin", NULL};

const struct tt_row_kind tt_row_margin = {.name = "margin",
                                          .plural = "preferences with margins",
                                          .value = "margin",
                                          .members = members,
                                          .samples_each = 2,
                                          .read = read,
                                          .next = next};
