/* Lines of a text fitted to a terminal. */
#ifndef TT_CLI_WRAP_H
#define TT_CLI_WRAP_H

#include <stdbool.h>

#include "base/str.h"

struct tt_wrap {
    int columns;        /* of the terminal; a word that is wider stays whole */
    int used;           /* columns that the first line has before the text */
    int indent;         /* of the lines that continue one, beyond its own leading blanks */
    bool keep_brackets; /* no line ends within [ ] */
};

/* Appends `text`, its lines broken at blanks where they are wider than the terminal: between fields, which two blanks
 * part, if one ends in the line's second half. */
TT_MUST_USE tt_status tt_wrap_append(struct tt_str *out, const char *text, const struct tt_wrap *wrap);

#endif
