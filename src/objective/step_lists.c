#include "objective/step_lists.h"

#include <stdlib.h>

#include "base/alloc.h"

struct entry {
    double value;
    int64_t index;
};

void tt_step_lists_begin(struct tt_step_lists *lists, int columns)
{
    tt_free(lists->sorted);
    tt_free(lists->places);
    lists->sorted = NULL;
    lists->places = NULL;
    lists->columns = columns;
    lists->own_count = 0;
    lists->count = lists->next = 0;
}

void tt_step_lists_deinit(struct tt_step_lists *lists)
{
    tt_step_lists_begin(lists, 0);
    tt_free(lists->own);
    *lists = (struct tt_step_lists){0};
}

double *tt_step_lists_add(struct tt_step_lists *lists, int64_t groups)
{
    size_t columns = (size_t)lists->columns, before = lists->own_count, count = before + (size_t)groups;
    if (count * columns > lists->own_capacity &&
        tt_reserve(&lists->own, count * columns, &lists->own_capacity) != TT_OK)
        return NULL;
    lists->own_count = count;
    return lists->own + before * columns;
}

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void sort_column(struct tt_step_lists *lists, int column, const double *all, int64_t first,
                        struct entry *entries)
{
    for (int64_t i = 0; i < lists->count; i++)
        entries[i] = (struct entry){all[i * lists->columns + column], i};
    qsort(entries, (size_t)lists->count, sizeof *entries, compare);
    for (int64_t place = 0; place < lists->count; place++) {
        int64_t own = entries[place].index - first;
        lists->sorted[column * lists->count + place] = entries[place].value;
        if (own >= 0 && own < (int64_t)lists->own_count) lists->places[own * lists->columns + column] = place;
    }
}

tt_status tt_step_lists_sort(struct tt_step_lists *lists, const double *all, int64_t count, int64_t first)
{
    size_t columns = (size_t)lists->columns;
    struct entry *entries = tt_calloc((size_t)count + 1, sizeof *entries);
    lists->sorted = tt_calloc((size_t)count * columns + 1, sizeof *lists->sorted);
    lists->places = tt_calloc(lists->own_count * columns + 1, sizeof *lists->places);
    lists->count = count;
    tt_status status =
        entries != NULL && lists->sorted != NULL && lists->places != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int c = 0; c < lists->columns && status == TT_OK; c++) sort_column(lists, c, all, first, entries);
    tt_free(entries);
    return status;
}

struct tt_step_lists_view tt_step_lists_take(struct tt_step_lists *lists, int64_t groups)
{
    struct tt_step_lists_view view = {
        .columns = lists->columns, .count = lists->count, .sorted = lists->sorted};
    if (lists->places == NULL) return view;
    view.places = lists->places + lists->next * lists->columns;
    lists->next += groups;
    return view;
}
