#include "data/row_samples.h"

#include <string.h>

#include "data/store_file.h"

/* Positions have 24 bits of a row key (data/batch.h). */
enum { SAMPLE_TOKENS_MAX = 1 << 24 };

static tt_status add_sample(const struct tt_row_target *to, const struct tt_row *row, size_t first,
                            size_t count, bool whole)
{
    /* Token 0 has no prediction. An empty row has no arrays. */
    if (count < 2 || memchr(row->supervised + first + 1, 1, count - 1) == NULL) {
        to->report->without_supervision++;
        return TT_OK;
    }
    TT_TRY(tt_store_append(to->store, row->ids + first, row->supervised + first, (int32_t)count,
                           whole ? row->prompt : NULL, whole ? row->completion : NULL));
    to->store->samples[to->store->sample_count - 1].value = (double)row->value;
    return TT_OK;
}

size_t tt_row_sample_limit(const struct tt_data_config *config)
{
    return config->max_length > 0 && config->max_length < SAMPLE_TOKENS_MAX ? (size_t)config->max_length
                                                                            : SAMPLE_TOKENS_MAX;
}

int64_t tt_dataset_limit(const struct tt_data_config *config)
{
    return tt_data_streams(config) ? SAMPLE_TOKENS_MAX : (int64_t)tt_row_sample_limit(config);
}

/* Rows of which every token is used: a text, and those of a stream. */
bool tt_row_keeps_all(const struct tt_row_making *making)
{
    return making->rows->plain_text || tt_data_streams(making->config);
}

/* Tokens of a sample that a row of which every token is used is cut into. Only a stream has whole texts, unless samples
 * of them are to be held out. */
static size_t piece_length(const struct tt_row_making *making)
{
    const struct tt_data_config *config = making->config;
    bool whole = tt_data_streams(config) && !(making->rows->plain_text && tt_data_holds_out(config));
    return whole ? SAMPLE_TOKENS_MAX : tt_row_sample_limit(config);
}

/* Consecutive samples. In a stream each token counts, with a label or without: it moves the cuts behind it. */
static tt_status add_pieces(const struct tt_row_making *making, const struct tt_row *row,
                            const struct tt_row_target *to)
{
    size_t length = piece_length(making), count = row->count, most;
    bool streams = tt_data_streams(making->config);
    if (making->rows->plain_text && streams && making->row_limit > 0 &&
        !__builtin_mul_overflow(making->row_limit, tt_row_sample_limit(making->config), &most) &&
        count > most)
        count = most;
    if (count == 0) to->report->without_supervision++;
    for (size_t first = 0; first < count; first += length) {
        size_t now = count - first < length ? count - first : length;
        bool whole = count <= length;
        TT_TRY(!streams ? add_sample(to, row, first, now, whole)
                        : tt_store_append(to->store, row->ids + first, row->supervised + first, (int32_t)now,
                                          whole ? row->prompt : NULL, whole ? row->completion : NULL));
    }
    return TT_OK;
}

/* Counts a row of more tokens than max_length; TT_OVER_LENGTH_ERROR fails. */
static tt_status check_length(const struct tt_row_making *making, size_t index, size_t total)
{
    if (making->config->max_length_of_model) {
        tt_fail(TT_ERR_DATA, "'%s', row %zu (line %llu): %zu tokens are more than the model's %zu positions",
                making->rows->path, making->rows->before + index + 1,
                (unsigned long long)making->rows->spans[index].line, total,
                tt_row_sample_limit(making->config));
        tt_hint("max_length is null: set it, and over_length, to shorten such rows or to leave them out");
        return TT_ERR_DATA;
    }
    if (making->config->over_length != TT_OVER_LENGTH_ERROR) return TT_OK;
    tt_fail(TT_ERR_DATA, "'%s', row %zu (line %llu): %zu tokens are more than max_length (%zu)",
            making->rows->path, making->rows->before + index + 1,
            (unsigned long long)making->rows->spans[index].line, total, tt_row_sample_limit(making->config));
    tt_hint("raise max_length, or set over_length to truncate or drop");
    return TT_ERR_DATA;
}

static tt_status add_row(const struct tt_row_making *making, size_t index, const struct tt_row *row,
                         const struct tt_row_target *to)
{
    struct tt_dataset_report *report = to->report;
    size_t limit = tt_row_sample_limit(making->config), total = row->total, longest = total;
    if (tt_row_keeps_all(making) && longest > piece_length(making)) longest = piece_length(making);
    if ((int64_t)longest > report->longest) report->longest = (int64_t)longest;
    if (tt_row_keeps_all(making)) return add_pieces(making, row, to);
    if (total <= limit) return add_sample(to, row, 0, total, true);
    TT_TRY(check_length(making, index, total));
    if (making->config->over_length == TT_OVER_LENGTH_DROP) {
        report->dropped++;
        return TT_OK;
    }
    report->truncated++;
    return add_sample(to, row, 0, limit, true);
}

/* One answer of a preference. Both are added or none: the decision is the same for each, and counted with the first. A
 * prompt that fills max_length leaves nothing of the answers, and so does an answer without a token. */
static tt_status add_side(const struct tt_row_making *making, size_t index, const struct tt_row *row,
                          size_t part, const struct tt_row_target *to)
{
    struct tt_dataset_report *report = to->report;
    size_t limit = tt_row_sample_limit(making->config), prompt = row->border > 0 ? row->border : 1;
    bool first = part == 0, is_long = row->longest > limit;
    if ((int64_t)row->longest > report->longest) report->longest = (int64_t)row->longest;
    if (is_long) TT_TRY(check_length(making, index, row->longest));
    if (is_long && making->config->over_length == TT_OVER_LENGTH_DROP) {
        report->dropped += first;
        return TT_OK;
    }
    if (prompt >= limit || prompt >= row->shortest) {
        report->without_supervision += first;
        return TT_OK;
    }
    report->truncated += first && is_long;
    return add_sample(to, row, 0, row->total < limit ? row->total : limit, true);
}

/* `row`: 0 takes that of the role. */
static void add_role(struct tt_dataset_report *report, const struct tt_role_count *role, int64_t row)
{
    for (size_t i = 0; i < TT_ROLES_MAX; i++) {
        struct tt_role_count *known = &report->roles[i];
        if (known->name[0] == '\0') {
            *known = *role;
            if (row > 0) known->row = row;
            return;
        }
        if (strcmp(known->name, role->name) != 0) continue;
        known->conversations += role->conversations;
        known->masked |= role->masked;
        return;
    }
}

static void count_row(struct tt_dataset_report *report, const struct tt_row *row, size_t index)
{
    report->rows++;
    report->prompt_mismatch += row->prompt_mismatch;
    report->conversations += row->conversation;
    report->roles_mapped += row->roles_mapped;
    report->history_differs += row->history_differs;
    report->role_doubtful += row->role_count > 0;
    report->answer_empty += row->answer_empty;
    int64_t number = (int64_t)index + 1;
    for (int i = 0; i < row->role_count; i++) add_role(report, &row->roles[i], number);
    if (row->answer_empty && report->answer_empty_row == 0) report->answer_empty_row = number;
}

void tt_dataset_report_add(struct tt_dataset_report *sum, const struct tt_dataset_report *report)
{
    sum->rows += report->rows;
    sum->truncated += report->truncated;
    sum->dropped += report->dropped;
    sum->without_supervision += report->without_supervision;
    sum->prompt_mismatch += report->prompt_mismatch;
    sum->conversations += report->conversations;
    sum->roles_mapped += report->roles_mapped;
    sum->history_differs += report->history_differs;
    sum->role_doubtful += report->role_doubtful;
    sum->answer_empty += report->answer_empty;
    for (size_t i = 0; i < TT_ROLES_MAX && report->roles[i].name[0] != '\0'; i++)
        add_role(sum, &report->roles[i], 0);
    if (sum->answer_empty_row == 0) sum->answer_empty_row = report->answer_empty_row;
    if (report->longest > sum->longest) sum->longest = report->longest;
}

tt_status tt_row_samples_add(const struct tt_row_making *making, struct tt_row_reader *reader, size_t index,
                             const struct tt_row_target *to)
{
    struct tt_row row = {.parts = 1};
    for (size_t part = 0; part < row.parts; part++) {
        TT_TRY(tt_row_read(reader, index, part, &row));
        if (part == 0) count_row(to->report, &row, making->rows->before + index);
        TT_TRY(row.pair ? add_side(making, index, &row, part, to) : add_row(making, index, &row, to));
    }
    return TT_OK;
}
