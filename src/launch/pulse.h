/* Detection of a rank's thread that hangs in a call. While the thread queues the work of a pass it beats once for each
 * block. A thread without a beat for long is in a call that may never return (a driver whose GPU hangs, a rank that
 * will never join). Nothing inside the process can end that call: the watch notifies the other processes, and the
 * program's handler ends the process. */
#ifndef TT_LAUNCH_PULSE_H
#define TT_LAUNCH_PULSE_H

#include <stdatomic.h>
#include "base/error.h"
#include "comm/comm.h"

struct tt_pulse {
    _Atomic(int64_t) beat_ms;   /* monotonic clock at the last beat; 0: at rest */
    _Atomic(int64_t) last_ms;   /* the same, and kept at rest */
    _Atomic(const char *) what; /* name of the work since the last beat; a string that outlives the run */
};

void tt_pulse_beat(struct tt_pulse *pulse, const char *what); /* takes NULL */
void tt_pulse_rest(struct tt_pulse *pulse);                   /* takes NULL: the pass is over */
/* tt_clock_seconds at the last beat of any of `count` pulses; 0: none has beaten. */
double tt_pulse_last(const struct tt_pulse *pulses, int count);
/* The time without a beat after which a rank is stuck. `hang_seconds`: as below. */
double tt_pulse_limit_seconds(double hang_seconds);

/* Called by a separate thread when a rank is stuck, with an error that names the rank and its work. Does not return in
 * a program (trimtab prints it and exits with the code of a device error). Without a handler the run only notifies the
 * other processes. Set once, before the first run. */
typedef void tt_stuck_handler(const struct tt_error *error);
void tt_pulse_set_handler(tt_stuck_handler *handler);

/* Watches `count` pulses (lent, as the communicators) until it is stopped. Ranks are numbered from `first_rank`.
 * `hang_seconds`: the seconds after which a device reports that it hangs; 0: its default. */
struct tt_pulse_watch;
TT_MUST_USE tt_status tt_pulse_watch_start(struct tt_pulse *pulses, int count, int first_rank,
                                           struct tt_comm *comm, double hang_seconds,
                                           struct tt_pulse_watch **out);
void tt_pulse_watch_stop(struct tt_pulse_watch *watch); /* takes NULL */

#endif
