/* Completion of shells, from the tables of commands and settings. */
#ifndef TT_CLI_COMPLETION_H
#define TT_CLI_COMPLETION_H

#include "base/str.h"

/* Appends a script for bash that completes commands, settings and the words of their values. */
TT_MUST_USE tt_status tt_completion_bash(struct tt_str *text);
/* The same for zsh, with the first sentence of each help. */
TT_MUST_USE tt_status tt_completion_zsh(struct tt_str *text);

#endif
