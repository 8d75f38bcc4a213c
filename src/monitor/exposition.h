/* Metrics as text for a scraper: Prometheus' text format 0.0.4, or OpenMetrics 1.0. The first names a counter's family
 * with its "_total", the second without; only the second has units and an end. */
#ifndef TT_MONITOR_EXPOSITION_H
#define TT_MONITOR_EXPOSITION_H

#include <stdint.h>
#include "base/str.h"

enum tt_metric_kind { TT_METRIC_GAUGE, TT_METRIC_COUNTER, TT_METRIC_HISTOGRAM, TT_METRIC_INFO };

/* A family of samples. `name` has neither "_total" nor "_info", and ends with its unit. */
struct tt_metric_family {
    const char *name;
    enum tt_metric_kind kind;
    const char *unit; /* "seconds"; NULL: none */
    const char *help;
};

/* Appends to `text`, lent. An error is kept: the calls that follow have no effect, and the end returns it. */
struct tt_exposition {
    struct tt_str *text;
    bool open_metrics;
    const struct tt_metric_family *family;
    tt_status status;
};

/* Chooses the format by a header Accept, which may be NULL. */
bool tt_exposition_wants_open_metrics(const char *accept);
const char *tt_exposition_type(bool open_metrics); /* Content-Type */

/* The samples that follow belong to `family`, which is lent until the next one. */
void tt_exposition_family(struct tt_exposition *exposition, const struct tt_metric_family *family);
/* `labels`: "rank=\"0\",phase=\"data\"", whose values have been escaped; empty: none. */
void tt_exposition_sample(struct tt_exposition *exposition, const char *labels, double value);
/* `counts[i]`: observations of at most `bounds[i]` and more than the bound before, for i < `count`; counts[count]: the
 * larger ones. */
void tt_exposition_histogram(struct tt_exposition *exposition, const double *bounds, const int64_t *counts,
                             int count, double sum);
TT_MUST_USE tt_status tt_exposition_end(struct tt_exposition *exposition);

#endif
