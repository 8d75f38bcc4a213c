/* Rows with a preference and perhaps log p of both answers by a reference model, sums over their tokens, under the
 * names of TRL 1.16 (`ref_chosen_logps`, `ref_rejected_logps`) and with "reference" written out. The value of a sample
 * is -log p, and 0 where the row has none. */
#include <math.h>
#include <string.h>

#include "data/row_reader_impl.h"

static const char *const names[2][2] = {{"ref_chosen_logps", "reference_chosen_logps"},
                                        {"ref_rejected_logps", "reference_rejected_logps"}};

static const struct tt_json_value *find(const struct tt_json_value *row, size_t side)
{
    for (size_t n = 0; n < 2; n++) {
        const struct tt_json_value *value = tt_json_get(row, names[side][n]);
        if (value != NULL && !tt_json_is_null(value)) return value;
    }
    return NULL;
}

static tt_status read_references(struct tt_row_reader *reader, const struct tt_json_value *row)
{
    for (size_t side = 0; side < 2; side++) {
        const struct tt_json_value *value = find(row, side);
        double logp = tt_json_number(value);
        reader->pair.references[side] = 0;
        if (value == NULL && find(row, 1 - side) != NULL)
            return tt_row_fail(reader, TT_ERR_DATA, "the row has '%s', and no '%s'", names[1 - side][0],
                               names[side][0]);
        if (value == NULL) continue;
        if (!tt_json_is_number(value) || !isfinite(logp) || logp > 0)
            return tt_row_fail(reader, TT_ERR_DATA, "'%s' is no log p: a number of at most 0",
                               names[side][0]);
        /* An answer of probability 1 has a reference, too. */
        reader->pair.references[side] = logp < 0 ? (float)-logp : 1e-30F;
    }
    return TT_OK;
}

static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    TT_TRY(read_references(reader, row));
    TT_TRY(tt_row_pair.read(reader, row, out));
    out->value = reader->pair.references[0];
    return TT_OK;
}

static tt_status next(struct tt_row_reader *reader, struct tt_row *out)
{
    TT_TRY(tt_row_pair.next(reader, out));
    out->value = reader->pair.references[1];
    return TT_OK;
}

static const char *const members[] = {"ref_chosen_logps", "ref_rejected_logps", "reference_chosen_logps",
                                      "reference_rejected_logps", NULL};

const struct tt_row_kind tt_row_referenced = {.name = "referenced",
                                              .plural = "preferences with references",
                                              .value = "reference",
                                              .members = members,
                                              .samples_each = 2,
                                              .read = read,
                                              .next = next};
