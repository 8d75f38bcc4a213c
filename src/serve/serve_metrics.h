/* Figures of a server for scrapers: counted by its threads, written as text for GET /metrics. */
#ifndef TT_SERVE_SERVE_METRICS_H
#define TT_SERVE_SERVE_METRICS_H

#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

/* Why an answer ended. */
enum tt_serve_end { TT_SERVE_STOP, TT_SERVE_LENGTH, TT_SERVE_TOOL_CALLS, TT_SERVE_CANCELLED, TT_SERVE_ENDS };
/* Why a request was turned away. */
enum tt_serve_refusal {
    TT_SERVE_INVALID,      /* 400, 404 */
    TT_SERVE_NO_KEY,       /* 401 */
    TT_SERVE_QUEUE_FULL,   /* 429 */
    TT_SERVE_CLIENT_LIMIT, /* 429 */
    TT_SERVE_STOPPING,     /* 503 */
    TT_SERVE_REFUSALS
};
/* Seconds that are observed. */
enum tt_serve_time {
    TT_SERVE_QUEUE_TIME,  /* of a request, until its first answer is begun */
    TT_SERVE_FIRST_TOKEN, /* of a request, until the first token of an answer */
    TT_SERVE_TOKEN_TIME,  /* between the tokens of an answer, their mean */
    TT_SERVE_REQUEST_TIME,
    TT_SERVE_TIMES
};

/* The state after a step, by the thread of the engine. */
struct tt_serve_state {
    int64_t running, waiting; /* answers */
    int64_t slots;            /* answers that can run at the same time */
    int64_t passes;           /* of the model, on rank 0 */
    int64_t cached, cache;    /* tokens that its key/value cache holds, and has room for */
    int64_t reused;           /* tokens of prompts that it did not compute again */
};

struct tt_serve_metrics;
TT_MUST_USE tt_status tt_serve_metrics_create(struct tt_serve_metrics **out);
void tt_serve_metrics_destroy(struct tt_serve_metrics *metrics); /* takes NULL */

/* All of these: any thread. */
void tt_serve_count_prompt(struct tt_serve_metrics *metrics, int64_t tokens);
void tt_serve_count_tokens(struct tt_serve_metrics *metrics, int64_t tokens);
void tt_serve_count_end(struct tt_serve_metrics *metrics, enum tt_serve_end end);
void tt_serve_count_refusal(struct tt_serve_metrics *metrics, enum tt_serve_refusal refusal);
void tt_serve_observe(struct tt_serve_metrics *metrics, enum tt_serve_time time, double seconds);
void tt_serve_publish(struct tt_serve_metrics *metrics, const struct tt_serve_state *state);
/* Appends the text in the format of monitor/exposition.h. */
TT_MUST_USE tt_status tt_serve_metrics_write(struct tt_serve_metrics *metrics, bool open_metrics,
                                             struct tt_str *text);

#endif
