/* Time. */
#ifndef TT_BASE_CLOCK_H
#define TT_BASE_CLOCK_H

double tt_clock_seconds(void);      /* monotonic, arbitrary origin */
double tt_clock_unix_seconds(void); /* since 1970, for stamps in files */

#endif
