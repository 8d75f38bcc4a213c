#include "cli/data_report.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/show.h"
#include "data/statistics.h"

enum { BAR_COLUMNS = 40 };

/* One of the data sets of the inputs. */
struct subject {
    const struct tt_dataset *dataset;
    const struct tt_sources *files; /* those that it was loaded from */
    const char *name;
    double seconds;
    struct tt_dataset_report report;
    struct tt_data_statistics statistics;
};

static tt_status subject_make(const struct tt_inputs *inputs, bool eval, struct subject *out)
{
    *out = (struct subject){
        .dataset = eval ? inputs->eval : inputs->train,
        .files = eval ? tt_inputs_eval_files(inputs) : &inputs->train_files,
        .name = eval ? "evaluation data" : "training data",
        .seconds = eval ? inputs->eval_seconds : inputs->train_seconds,
    };
    tt_dataset_report(out->dataset, &out->report);
    return tt_data_statistics_make(out->dataset, &out->statistics);
}

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static const char *over_length_word(const struct tt_data_config *data)
{
    static const char *const words[] = {[TT_OVER_LENGTH_TRUNCATE] = "truncate",
                                        [TT_OVER_LENGTH_DROP] = "drop",
                                        [TT_OVER_LENGTH_ERROR] = "error"};
    return words[data->over_length];
}

static tt_status append_escaped(struct tt_str *text, const char *data, size_t bytes)
{
    size_t needed = tt_utf8_printable(data, bytes, "\n\t", NULL, 0);
    char *shown = tt_calloc(needed + 1, 1);
    if (shown == NULL) return TT_ERR_MEMORY;
    (void)tt_utf8_printable(data, bytes, "\n\t", shown, needed + 1);
    tt_status status = tt_str_append(text, shown, needed);
    tt_free(shown);
    return status;
}

/* ---- Samples ---- */

struct marking {
    const struct tt_data_view *view;
    struct tt_str *text;
};

static tt_status add_piece(void *context, const struct tt_show_part *part)
{
    const struct marking *marking = context;
    struct tt_str *text = marking->text;
    if (part->supervised) TT_TRY(tt_str_append_text(text, marking->view->on));
    TT_TRY(append_escaped(text, part->text.data, part->text.bytes));
    if (part->supervised) TT_TRY(tt_str_append_text(text, marking->view->off));
    return part->left > 0 ? tt_str_printf(text, " ... (%d more tokens)", (int)part->left) : TT_OK;
}

static size_t end_of_view(const struct tt_inputs *inputs, const struct tt_data_view *view)
{
    size_t samples = tt_dataset_count(inputs->train);
    if (view->first >= samples) return view->first;
    return view->count < samples - view->first ? view->first + view->count : samples;
}

tt_status tt_data_report_rows(const struct tt_inputs *inputs, const struct tt_data_view *view,
                              struct tt_str *text)
{
    struct marking marking = {view, text};
    size_t samples = tt_dataset_count(inputs->train), end = end_of_view(inputs, view);
    for (size_t i = view->first; i < end; i++) {
        struct tt_sample sample = tt_dataset_sample(inputs->train, i);
        TT_TRY(tt_str_printf(text, "sample %zu of %zu: %d tokens, %d of them supervised (%s like this%s)\n",
                             i + 1, samples, (int)sample.count, (int)sample.supervised_count, view->on,
                             view->off));
        TT_TRY(tt_dataset_pieces(inputs->train, i, inputs->tokenizer, add_piece, &marking));
        TT_TRY(tt_str_append_text(text, "\n\n"));
    }
    return TT_OK;
}

/* ---- Figures ---- */

static tt_status write_histogram(const struct tt_data_statistics *statistics, struct tt_str *text)
{
    int64_t most = 1;
    for (int i = 0; i < statistics->bin_count; i++)
        if (statistics->bins[i].samples > most) most = statistics->bins[i].samples;
    int first = 0;
    while (statistics->bins[first].samples == 0) first++;
    for (int i = first; i < statistics->bin_count; i++) {
        const struct tt_data_bin *bin = &statistics->bins[i];
        size_t columns = (size_t)((double)BAR_COLUMNS * (double)bin->samples / (double)most + 0.5);
        if (columns == 0 && bin->samples > 0) columns = 1;
        TT_TRY(tt_str_printf(text, "  %8lld .. %-8lld %10lld ", (long long)bin->from, (long long)bin->to,
                             (long long)bin->samples));
        TT_TRY(tt_str_append_fill(text, '#', columns));
        TT_TRY(tt_str_append_char(text, '\n'));
    }
    return TT_OK;
}

static tt_status write_over_length(const struct subject *subject, const struct tt_inputs *inputs,
                                   const struct tt_data_config *data, struct tt_str *text)
{
    const struct tt_dataset_report *report = &subject->report;
    if (tt_data_streams(data))
        return tt_str_printf(text, "one stream        cut every %lld tokens (the longest row has %lld)\n",
                             (long long)inputs->max_length, (long long)report->longest);
    TT_TRY(tt_str_printf(text, "over max_length   %lld rows of more than %lld tokens (the longest has %lld)",
                         (long long)(report->truncated + report->dropped), (long long)inputs->max_length,
                         (long long)report->longest));
    if (report->truncated > 0) TT_TRY(tt_str_append_text(text, ", truncated"));
    if (report->dropped > 0) TT_TRY(tt_str_append_text(text, ", dropped"));
    if (report->truncated + report->dropped == 0)
        TT_TRY(tt_str_printf(text, "; over_length: %s", over_length_word(data)));
    return tt_str_append_char(text, '\n');
}

/* Counts that are of interest when they are not 0. */
static tt_status write_warnings(const struct tt_dataset_report *report, struct tt_str *text)
{
    if (report->prompt_mismatch > 0)
        TT_TRY(tt_str_printf(
            text, "prompt mismatch   %lld rows whose prompt tokenizes differently with its completion\n",
            (long long)report->prompt_mismatch));
    if (report->roles_mapped > 0)
        TT_TRY(tt_str_printf(text,
                             "roles mapped      %lld conversations (human: user, gpt: assistant, ...)\n",
                             (long long)report->roles_mapped));
    if (report->history_differs > 0)
        TT_TRY(tt_str_printf(
            text,
            "history differs   %lld conversations with an earlier turn that the model would write "
            "differently\n",
            (long long)report->history_differs));
    for (size_t i = 0; i < TT_ROLES_MAX && report->roles[i].name[0] != '\0'; i++)
        TT_TRY(tt_str_printf(text,
                             "role in doubt     '%s' in %lld conversations, the first in row %lld: it is no "
                             "usual role%s\n",
                             report->roles[i].name, (long long)report->roles[i].conversations,
                             (long long)report->roles[i].row,
                             report->roles[i].masked ? " and does not train" : ""));
    if (report->answer_empty > 0)
        TT_TRY(tt_str_printf(
            text,
            "empty answers     %lld conversations with an assistant's message that says "
            "nothing, or whose tool calls the chat template leaves out, the first in row %lld\n",
            (long long)report->answer_empty, (long long)report->answer_empty_row));
    return TT_OK;
}

static tt_status write_parts(const struct subject *subject, struct tt_str *text)
{
    size_t count;
    const struct tt_dataset_part *parts = tt_dataset_parts(subject->dataset, &count);
    if (count < 2) return TT_OK;
    TT_TRY(tt_str_printf(text, "%10s %10s %14s %14s  source\n", "rows", "samples", "tokens", "supervised"));
    for (size_t i = 0; i < count; i++) {
        const struct tt_dataset_report *report = &parts[i].report;
        const char *name = subject->files->sources[parts[i].source].name;
        TT_TRY(tt_str_printf(text, "%10lld %10lld %14lld %14lld  ", (long long)report->rows,
                             (long long)report->samples, (long long)report->tokens,
                             (long long)report->supervised_tokens));
        TT_TRY(append_escaped(text, name, strlen(name)));
        TT_TRY(tt_str_append_char(text, '\n'));
    }
    return TT_OK;
}

tt_status tt_data_report_text(const struct tt_inputs *inputs, const struct tt_data_view *view, bool eval,
                              struct tt_str *text)
{
    struct subject subject;
    TT_TRY(subject_make(inputs, eval, &subject));
    const struct tt_dataset_report *report = &subject.report;
    const struct tt_data_statistics *s = &subject.statistics;
    TT_TRY(tt_str_printf(text, "%s%s\n", eval ? "\n" : "", subject.name));
    TT_TRY(tt_str_printf(text, "rows              %lld\nsamples           %lld\n", (long long)report->rows,
                         (long long)report->samples));
    TT_TRY(tt_str_printf(text, "tokens            %lld, of which %lld are supervised (%.1f %%)\n",
                         (long long)report->tokens, (long long)report->supervised_tokens,
                         share(report->supervised_tokens, report->tokens)));
    TT_TRY(tt_str_printf(text, "lengths           min %lld, median %lld, p95 %lld, max %lld, mean %.1f\n",
                         (long long)s->shortest, (long long)s->median, (long long)s->p95,
                         (long long)s->longest, s->mean));
    TT_TRY(write_histogram(s, text));
    struct tt_data_config data = *view->data;
    if (eval) data.packing = tt_data_packs_eval(&data);
    TT_TRY(write_over_length(&subject, inputs, &data, text));
    TT_TRY(tt_str_printf(text, "without labels    %lld, left out\n", (long long)report->without_supervision));
    TT_TRY(tt_str_printf(text, "duplicates        %lld samples are equal to an earlier one (%.1f %%)\n",
                         (long long)s->duplicates, share(s->duplicates, report->samples)));
    TT_TRY(write_warnings(report, text));
    TT_TRY(write_parts(&subject, text));
    if (subject.seconds <= 0) return TT_OK;
    return tt_str_printf(text, "reading           %.2f s, %s tokens/s\n", subject.seconds,
                         tt_rounded((double)report->tokens / subject.seconds).text);
}

/* ---- JSON ---- */

static struct tt_json_value *report_to_json(const struct tt_dataset_report *report)
{
    struct tt_json_value *roles = tt_json_new_list();
    for (size_t i = 0; i < TT_ROLES_MAX && report->roles[i].name[0] != '\0'; i++)
        tt_json_append(roles, tt_json_pack("{s:s,s:I,s:I,s:b}", "role", report->roles[i].name,
                                           "conversations", report->roles[i].conversations, "row",
                                           report->roles[i].row, "trains", report->roles[i].masked == 0));
    return tt_json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "rows", report->rows,
                        "samples", report->samples, "tokens", report->tokens, "supervised_tokens",
                        report->supervised_tokens, "longest_row", report->longest, "truncated",
                        report->truncated, "dropped", report->dropped, "without_supervision",
                        report->without_supervision, "prompt_mismatch", report->prompt_mismatch,
                        "conversations", report->conversations, "roles_mapped", report->roles_mapped,
                        "history_differs", report->history_differs, "role_doubtful", report->role_doubtful,
                        "answer_empty", report->answer_empty, "roles_in_doubt", roles);
}

static struct tt_json_value *lengths_to_json(const struct tt_data_statistics *s)
{
    struct tt_json_value *bins = tt_json_new_list();
    for (int i = 0; i < s->bin_count; i++)
        tt_json_append(bins, tt_json_pack("{s:I,s:I,s:I}", "from", s->bins[i].from, "to", s->bins[i].to,
                                          "samples", s->bins[i].samples));
    return tt_json_pack("{s:I,s:I,s:I,s:I,s:f,s:o}", "min", s->shortest, "median", s->median, "p95", s->p95,
                        "max", s->longest, "mean", s->mean, "histogram", bins);
}

static struct tt_json_value *parts_to_json(const struct subject *subject)
{
    size_t count;
    const struct tt_dataset_part *parts = tt_dataset_parts(subject->dataset, &count);
    struct tt_json_value *list = tt_json_new_list();
    for (size_t i = 0; i < count; i++) {
        const struct tt_source *source = &subject->files->sources[parts[i].source];
        struct tt_json_value *one = report_to_json(&parts[i].report);
        tt_json_set(one, "source", tt_json_new_string(source->name));
        tt_json_set(one, "weight", tt_json_new_real(source->weight));
        tt_json_append(list, one);
    }
    return list;
}

static struct tt_json_value *figures_to_json(const struct subject *subject, const struct tt_inputs *inputs,
                                             const struct tt_data_config *data)
{
    const struct tt_data_statistics *s = &subject->statistics;
    struct tt_json_value *object = report_to_json(&subject->report);
    if (object == NULL) return NULL;
    tt_json_set(object, "max_length", tt_json_new_integer(inputs->max_length));
    tt_json_set(object, "over_length", tt_json_new_string(over_length_word(data)));
    tt_json_set(object, "duplicates", tt_json_new_integer(s->duplicates));
    tt_json_set(object, "lengths", lengths_to_json(s));
    tt_json_set(object, "sources", parts_to_json(subject));
    tt_json_set(object, "seconds", tt_json_new_real(subject->seconds));
    return object;
}

static tt_status add_json_piece(void *context, const struct tt_show_part *part)
{
    struct tt_json_value *list = context;
    struct tt_json_value *piece =
        tt_json_pack("{s:t,s:b}", "text", part->text, "supervised", (int)part->supervised);
    tt_json_append(list, piece);
    return TT_OK;
}

static tt_status add_json_sample(const struct tt_inputs *inputs, size_t index, struct tt_json_value *list)
{
    struct tt_sample sample = tt_dataset_sample(inputs->train, index);
    struct tt_json_value *ids = tt_json_new_list(), *labels = tt_json_new_list(),
                         *pieces = tt_json_new_list();
    tt_status status = tt_dataset_pieces(inputs->train, index, inputs->tokenizer, add_json_piece, pieces);
    for (int32_t t = 0; t < sample.count; t++) {
        tt_json_append(ids, tt_json_new_integer(sample.ids[t]));
        tt_json_append(labels, tt_json_new_integer(sample.supervised[t] ? sample.ids[t] : TT_LABEL_NONE));
    }
    struct tt_json_value *one =
        tt_json_pack("{s:I,s:i,s:i,s:o,s:o,s:o}", "sample", (int64_t)index, "tokens", (int)sample.count,
                     "supervised_tokens", (int)sample.supervised_count, "pieces", pieces, "input_ids", ids,
                     "labels", labels);
    tt_json_append(list, one);
    return status;
}

tt_status tt_data_report_json(const struct tt_inputs *inputs, const struct tt_data_view *view,
                              struct tt_str *text)
{
    tt_status status = TT_OK;
    struct subject subject;
    struct tt_json_value *object = tt_json_new_object(), *samples = tt_json_new_list();
    TT_GO(subject_make(inputs, false, &subject));
    tt_json_set(object, "train", figures_to_json(&subject, inputs, view->data));
    if (inputs->eval != NULL) {
        TT_GO(subject_make(inputs, true, &subject));
        tt_json_set(object, "eval", figures_to_json(&subject, inputs, view->data));
    }
    for (size_t i = view->first; i < end_of_view(inputs, view); i++)
        TT_GO(add_json_sample(inputs, i, samples));
    tt_json_set(object, "samples", samples);
    samples = NULL;
    TT_GO(tt_json_write(object, 0, false, text));
    status = tt_str_append_char(text, '\n');
out:
    tt_json_release(object);
    tt_json_release(samples);
    return status;
}
