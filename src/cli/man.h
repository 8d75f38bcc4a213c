/* Manual pages, from the tables of commands and settings. */
#ifndef TT_CLI_MAN_H
#define TT_CLI_MAN_H

#include "base/str.h"

struct tt_command;

/* Appends the page of a command, trimtab-NAME(1); NULL: of the program, trimtab(1). */
TT_MUST_USE tt_status tt_man_page(struct tt_str *roff, const struct tt_command *command);

#endif
