#ifndef TT_BASE_MEDIAN_H
#define TT_BASE_MEDIAN_H

#include <stddef.h>

/* Sorts values[count] and returns the median, of an even number the higher one of the two in the middle; 0 for none. */
double tt_median(double *values, size_t count);

#endif
