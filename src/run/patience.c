#include "run/patience.h"

#include <math.h>

/* The best metric before the first one is infinitely bad, so that NaN first is not an improvement for ever. */
void tt_patience_record(struct tt_patience *patience, double metric, bool greater, double threshold)
{
    bool first = !patience->known;
    if (first) patience->metric = greater ? -INFINITY : INFINITY;
    patience->known = true;
    bool better = greater ? metric > patience->metric : metric < patience->metric;
    bool improves = first || (better && fabs(metric - patience->metric) > threshold);
    patience->waited = improves ? 0 : patience->waited + 1;
    if (better) patience->metric = metric;
}
