/* Bracketed paste: a terminal that is asked for it marks where a pasted text begins and ends, so that its lines are one
 * message. */
#ifndef TT_CLI_PASTE_H
#define TT_CLI_PASTE_H

#include <stdio.h>
#include <termios.h>

#include "base/str.h"

/* A zeroed struct is no paste. */
struct tt_paste {
    bool open;  /* the text goes on: read another line */
    bool first; /* the message begins with a pasted text */
};

/* Appends a line of the terminal to the message, without the marks; behind another line, after a line break. */
TT_MUST_USE tt_status tt_paste_add(struct tt_paste *paste, const struct tt_str *line, struct tt_str *message);

/* The terminal while a message is read. */
struct tt_paste_terminal {
    int file;
    bool changed;
    struct termios before;
};
/* Asks the terminal `file` for marks, on `screen`, and keeps it from showing them. */
void tt_paste_terminal_begin(int file, FILE *screen, struct tt_paste_terminal *terminal);
void tt_paste_terminal_end(FILE *screen, struct tt_paste_terminal *terminal);

#endif
