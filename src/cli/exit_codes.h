/* Exit codes are an interface: schedulers and scripts decide by them whether to retry. */
#ifndef TT_CLI_EXIT_CODES_H
#define TT_CLI_EXIT_CODES_H

#include "base/error.h"

enum tt_exit_code {
    TT_EXIT_DONE = 0,
    TT_EXIT_USAGE = 2, /* command line or configuration; do not retry */
    /* a model, tokenizer, data or output file or folder is wrong or missing; do not retry */
    TT_EXIT_DATA = 3,
    TT_EXIT_MEMORY = 4,   /* does not fit; do not retry */
    TT_EXIT_IO = 5,       /* reading or writing failed (disk full, network file system); retry */
    TT_EXIT_DEVICE = 10,  /* a device or a peer failed; retry */
    TT_EXIT_STOPPED = 11, /* stopped on request; a retry resumes from the last checkpoint */
    TT_EXIT_BUG = 70,     /* a bug in trimtab */
};

/* The meaning of a code in one line, for help and manual pages. */
struct tt_exit_meaning {
    enum tt_exit_code code;
    const char *text; /* NULL: the end of the table */
};

extern const struct tt_exit_meaning tt_exit_meanings[];

enum tt_exit_code tt_exit_code_of(tt_status status);
/* The code for an error record. TT_ERR_PEER has the code of the other rank's error, if that is known: a launcher
 * reports the code of whichever process ends first. */
enum tt_exit_code tt_exit_code_of_error(const struct tt_error *error);

#endif
