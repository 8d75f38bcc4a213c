/* The requests before the first client's. */
#ifndef TT_SERVE_TRIAL_H
#define TT_SERVE_TRIAL_H

#include "serve/talk.h"

/* Answers one of each model: a setting, a device or a machine that cannot compute an answer is found here, and not by a
 * request. */
TT_MUST_USE tt_status tt_serve_try(struct tt_talk *talk, size_t adapter_count);

#endif
