/* SIGINT, SIGTERM, SIGUSR1, SIGHUP and SIGXCPU request a stop, also where the caller has blocked them. The first
 * signal makes the run finish its step and save; the second ends the process at once with TT_EXIT_STOPPED (files are
 * always complete or invisible). Signals within half a second of the first count as one: a launcher and the terminal
 * often send the same signal twice. SIGHUP and SIGXCPU never are a second one, and SIGHUP stays ignored where it was
 * (nohup). SIGXFSZ is ignored, so that a write past the limit on file sizes fails with an error. SIGBUS, of a mapped
 * file that became shorter, ends the process with TT_EXIT_IO. */
#ifndef TT_CLI_SIGNALS_H
#define TT_CLI_SIGNALS_H

#include "base/thread.h"

/* `cancel` must live until the process ends. Called once, before any thread. */
void tt_signals_install(struct tt_cancel *cancel);
/* The text that the first signal writes in place of "stopping after this step"; a text that lives until the process
 * ends. */
void tt_signals_announce(const char *text);
/* The second signal names the newest checkpoint of this folder, and how a run resumes from it. The text must live until
 * a call with NULL. */
void tt_signals_name_checkpoints(const char *output_dir);
/* SIGINT only adds 1 to `interrupts` of the cancel from now on; the other signals request a stop as before. */
void tt_signals_count_interrupts(void);
/* A write to a pipe whose reader has ended fails from now on with EPIPE and does not end the process: for commands
 * whose work is worth more than their log. */
void tt_signals_outlive_readers(void);
/* Delays the end of a process for `seconds`; a signal during that time ends the process silently with `code`. */
void tt_signals_linger(int code, double seconds);

#endif
