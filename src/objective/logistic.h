/* The logarithm of the logistic function, without overflow. */
#ifndef TT_OBJECTIVE_LOGISTIC_H
#define TT_OBJECTIVE_LOGISTIC_H

#include <math.h>

static inline double tt_log_logistic(double x)
{
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

#endif
