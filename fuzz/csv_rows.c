/* CSV files as rows: each row that is found is an object of texts, as far as its bytes are UTF-8. */
/* words: src/data/csv_rows.c */
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"
#include "data/rows.h"
#include "folder.h"

static const struct tt_unpack_limits no_limits;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_rows rows;
    tt_status status = tt_rows_open(fuzz_write("x.csv", data, size), &no_limits, &rows);
    if (status != TT_OK && status != TT_ERR_DATA) abort();
    if (status != TT_OK) return 0;
    for (size_t i = 0; i < rows.count; i++) {
        struct tt_json json = {0};
        const struct tt_row_span *span = &rows.spans[i];
        const struct tt_json_source source = {
            .text = span->data, .bytes = span->bytes, .origin = "row", .first_line = 1, .nul = true};
        status = tt_json_parse_source(&source, &json);
        if (status == TT_OK && !tt_json_is_object(json.root)) abort();
        if (status != TT_OK && tt_utf8_invalid_at(span->data, span->bytes) == span->bytes) abort();
        tt_json_deinit(&json);
    }
    tt_rows_close(&rows);
    return 0;
}
