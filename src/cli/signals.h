/* SIGINT, SIGTERM and SIGUSR1 ask a run to stop: the first asks it to finish the step and save, the second ends the
 * process at once with TT_EXIT_STOPPED (files are always complete or invisible). Repeats within half a second are one
 * request: a launcher and the terminal often send the same signal twice. SIGXFSZ is ignored: a file
 * that may not grow is an error of the write. */
#ifndef TT_CLI_SIGNALS_H
#define TT_CLI_SIGNALS_H

#include "base/thread.h"

/* `cancel` must live until the process ends. Called once, before any thread. */
void tt_signals_install(struct tt_cancel *cancel);
/* For a process with nothing left to do: returns after `seconds`; a signal ends it with `code` and without a word. */
void tt_signals_linger(int code, double seconds);

#endif
