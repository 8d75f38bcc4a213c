#include "infer/adjust.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

bool tt_adjust_is_needed(const struct tt_adjust_options *options)
{
    return options->presence != 0 || options->frequency != 0 || options->min_tokens > 0 ||
           options->bias_count > 0;
}

tt_status tt_adjust_check(const struct tt_adjust_options *options, int64_t vocab)
{
    if (!isfinite(options->presence) || !isfinite(options->frequency))
        return tt_fail(TT_ERR_USAGE, "penalties of %g and %g, which must be numbers", options->presence,
                       options->frequency);
    if (options->bias_count > TT_LOGIT_BIASES_MAX)
        return tt_fail(TT_ERR_USAGE, "%zu biases of logits, at most %d", options->bias_count,
                       TT_LOGIT_BIASES_MAX);
    for (size_t i = 0; i < options->bias_count; i++)
        if (options->bias[i].id < 0 || options->bias[i].id >= vocab || isnan(options->bias[i].value))
            return tt_fail(TT_ERR_USAGE, "a bias of the logit of token %d, of a vocabulary of %lld",
                           (int)options->bias[i].id, (long long)vocab);
    return TT_OK;
}

static int compare_bias(const void *a, const void *b)
{
    const struct tt_logit_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

tt_status tt_adjustment_init(struct tt_adjustment *adjustment, const struct tt_adjust_options *options,
                             int64_t new_tokens)
{
    *adjustment = (struct tt_adjustment){.presence = options->presence,
                                         .frequency = options->frequency,
                                         .min_tokens = options->min_tokens,
                                         .bias_count = options->bias_count};
    if (options->bias_count > 0) {
        adjustment->bias = tt_calloc(options->bias_count, sizeof *adjustment->bias);
        if (adjustment->bias == NULL) return TT_ERR_MEMORY;
        memcpy(adjustment->bias, options->bias, options->bias_count * sizeof *options->bias);
        qsort(adjustment->bias, options->bias_count, sizeof *adjustment->bias, compare_bias);
    }
    if (options->presence == 0 && options->frequency == 0) return TT_OK;
    return tt_reserve(&adjustment->counts, (size_t)new_tokens, &adjustment->capacity);
}

void tt_adjustment_deinit(struct tt_adjustment *adjustment)
{
    tt_free(adjustment->bias);
    tt_free(adjustment->counts);
    *adjustment = (struct tt_adjustment){0};
}

void tt_adjustment_count(struct tt_adjustment *adjustment, int32_t id)
{
    size_t low = 0, high = adjustment->count;
    if (adjustment->presence == 0 && adjustment->frequency == 0) return;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (adjustment->counts[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < adjustment->count && adjustment->counts[low].id == id) {
        adjustment->counts[low].count++;
        return;
    }
    if (adjustment->count == adjustment->capacity) return; /* more tokens than the answer was to have */
    memmove(adjustment->counts + low + 1, adjustment->counts + low,
            (adjustment->count - low) * sizeof *adjustment->counts);
    adjustment->counts[low] = (struct tt_id_count){id, 1};
    adjustment->count++;
}

size_t tt_adjust_entries_max(int64_t new_tokens, size_t end_count)
{
    return (size_t)new_tokens + TT_LOGIT_BIASES_MAX + end_count;
}

tt_status tt_adjust_list_init(struct tt_adjust_list *list, size_t capacity)
{
    *list = (struct tt_adjust_list){.rows = tt_calloc(capacity, sizeof *list->rows),
                                    .ids = tt_calloc(capacity, sizeof *list->ids),
                                    .values = tt_calloc(capacity, sizeof *list->values),
                                    .capacity = capacity};
    return list->rows != NULL && list->ids != NULL && list->values != NULL ? TT_OK : TT_ERR_MEMORY;
}

void tt_adjust_list_deinit(struct tt_adjust_list *list)
{
    tt_free(list->rows);
    tt_free(list->ids);
    tt_free(list->values);
    *list = (struct tt_adjust_list){0};
}

static void add(struct tt_adjust_list *list, int64_t row, int32_t id, double value)
{
    if (list->count == list->capacity) return;
    list->rows[list->count] = (int32_t)row;
    list->ids[list->count] = id;
    list->values[list->count++] = (float)value;
}

static bool is_listed(int32_t id, const struct tt_ids *const *lists, size_t count)
{
    for (size_t l = 0; l < count; l++)
        for (size_t i = 0; i < lists[l]->count; i++)
            if (lists[l]->data[i] == id) return true;
    return false;
}

/* Ids that end the answer, each once. */
static void ban_ends(struct tt_adjust_list *list, int64_t row, const struct tt_ids *const *ends,
                     size_t end_lists)
{
    for (size_t l = 0; l < end_lists; l++)
        for (size_t i = 0; i < ends[l]->count; i++) {
            const struct tt_ids before = {.data = ends[l]->data, .count = i}, *const again = &before;
            if (is_listed(ends[l]->data[i], ends, l) || is_listed(ends[l]->data[i], &again, 1)) continue;
            add(list, row, ends[l]->data[i], -INFINITY);
        }
}

/* Both lists are sorted, and an id that is in both has one entry. */
void tt_adjust_list_add(struct tt_adjust_list *list, const struct tt_adjustment *adjustment, int64_t row,
                        size_t made, const struct tt_ids *const *ends, size_t end_lists)
{
    bool banned = (int64_t)made < adjustment->min_tokens;
    size_t c = 0, b = 0;
    while (c < adjustment->count || b < adjustment->bias_count) {
        const struct tt_id_count *counted = c < adjustment->count ? &adjustment->counts[c] : NULL;
        const struct tt_logit_bias *bias = b < adjustment->bias_count ? &adjustment->bias[b] : NULL;
        int32_t id = bias == NULL || (counted != NULL && counted->id < bias->id) ? counted->id : bias->id;
        double value = 0;
        if (counted != NULL && counted->id == id) {
            value -= adjustment->frequency * counted->count + adjustment->presence;
            c++;
        }
        if (bias != NULL && bias->id == id) {
            value += bias->value;
            b++;
        }
        if (!banned || !is_listed(id, ends, end_lists)) add(list, row, id, value);
    }
    if (banned) ban_ends(list, row, ends, end_lists);
}
