/* The cost of compiling one grammar. Sources are strangers': work and memory are counted in units that
 * do not depend on the machine, so that every rank of a team refuses the same sources. Internal to src/grammar. */
#ifndef TT_GRAMMAR_WORK_H
#define TT_GRAMMAR_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    GRAMMAR_STEPS_MAX = 6000000,      /* of work: about 100 ms on a processor of 2 GHz */
    GRAMMAR_BYTES_MAX = 32 * 1048576, /* of tables */
};

/* The first error stays: functions that build return nothing and do nothing after it. */
struct grammar_work {
    tt_status status;
    size_t steps, bytes;
    bool alphabet[256]; /* bytes that the tokens of a vocabulary can spell one by one */
};

/* Adds to the cost; false after an error, which is TT_ERR_USAGE where the cost is too high. */
bool grammar_spend(struct grammar_work *work, size_t steps, size_t bytes);
/* Keeps `status` as the first error, unless there is one; the record of this thread has its message. */
void grammar_fail(struct grammar_work *work, tt_status status);
/* The first error is a fault of the source, which the text describes. */
void grammar_refuse(struct grammar_work *work, const char *format, ...) TT_PRINTF(2, 3);
bool grammar_is_well(const struct grammar_work *work);

#endif
