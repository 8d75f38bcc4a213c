/* Values of all groups of a step in ascending order, for losses that compare a group with those of its place in another
 * list. Every rank has the same lists: they do not depend on how a step is split. */
#ifndef TT_OBJECTIVE_STEP_LISTS_H
#define TT_OBJECTIVE_STEP_LISTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A zeroed struct is empty. Arrays are owned. */
struct tt_step_lists {
    int columns; /* values of a group */
    double *own; /* [own_count][columns], this rank's groups in the order of its passes */
    size_t own_count, own_capacity;
    int64_t count;   /* groups of all ranks */
    double *sorted;  /* [columns][count] */
    int64_t *places; /* [own_count][columns]: where each value stands in its list */
    int64_t next;    /* the first group of the pass that comes next */
};

/* The part that a pass reads. */
struct tt_step_lists_view {
    int columns;
    int64_t count;
    const double *sorted;  /* [columns][count] */
    const int64_t *places; /* [groups of the pass][columns] */
};

/* Begins a step without groups. */
void tt_step_lists_begin(struct tt_step_lists *lists, int columns);
void tt_step_lists_deinit(struct tt_step_lists *lists);
/* Room for the values of the groups of a pass, [groups][columns], to be written; NULL: no memory. */
double *tt_step_lists_add(struct tt_step_lists *lists, int64_t groups);
/* Sorts `all`, [count][columns] of all ranks, in which this rank's groups begin at `first`. Equal values stand in the
 * order of `all`. */
TT_MUST_USE tt_status tt_step_lists_sort(struct tt_step_lists *lists, const double *all, int64_t count,
                                         int64_t first);
/* The lists for the next pass, which has so many groups. */
struct tt_step_lists_view tt_step_lists_take(struct tt_step_lists *lists, int64_t groups);

#endif
