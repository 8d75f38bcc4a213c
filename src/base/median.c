#include "base/median.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double tt_median(double *values, size_t count)
{
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}
