/* The last training rows of a run on a terminal, whose bar overwrites them: kept while it runs, shown at its end. */
#ifndef TT_CLI_LAST_ROWS_H
#define TT_CLI_LAST_ROWS_H

#include "base/str.h"
#include "run/trainer.h"

enum { TT_LAST_ROWS = 5, TT_LAST_FIELDS = 12 };

struct tt_last_rows {
    struct tt_last_row {
        long long step;
        struct tt_last_field {
            char name[32];
            double value;
        } fields[TT_LAST_FIELDS];
        int count;
    } rows[TT_LAST_ROWS];
    int next, count;
};

void tt_last_rows_add(struct tt_last_rows *last, const struct tt_log_row *row);
/* Appends a table of at most `columns`, with the fields of the newest row that fit, and forgets the rows; nothing if
 * there is none. */
TT_MUST_USE tt_status tt_last_rows_take(struct tt_last_rows *last, int columns, struct tt_str *text);
/* A value as rows show it: whole numbers and large ones without decimals, small ones with three digits. */
const char *tt_last_rows_value(double value, char *text, size_t text_bytes);

#endif
