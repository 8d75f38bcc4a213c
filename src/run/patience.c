#include "run/patience.h"

#include <math.h>

void tt_patience_record(struct tt_patience *patience, double metric, bool greater, double threshold)
{
    bool better = greater ? metric > patience->metric : metric < patience->metric;
    bool improves = !patience->known || (better && fabs(metric - patience->metric) > threshold);
    patience->waited = improves ? 0 : patience->waited + 1;
    if (isnan(metric)) return;
    if (!patience->known || better) patience->metric = metric;
    patience->known = true;
}
