#include "run/task_scores.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "text/answer_pattern.h"

void tt_item_score_deinit(struct tt_item_score *score)
{
    tt_free(score->sums);
    tt_free(score->greedy);
    tt_str_deinit(&score->text);
    tt_str_deinit(&score->answer);
    *score = (struct tt_item_score){0};
}

/* The first of the largest. `norm`: by characters. */
static size_t best_of(const struct tt_item_score *score, const struct tt_task_item *item, bool norm)
{
    size_t best = 0;
    double most = -INFINITY;
    for (size_t i = 0; i < item->prompt_count; i++) {
        double value = norm ? score->sums[i] / (double)item->prompts[i].characters : score->sums[i];
        if (!(value > most)) continue;
        most = value;
        best = i;
    }
    return best;
}

tt_status tt_item_score_choice(struct tt_item_score *score, const struct tt_task_item *item, size_t choice,
                               double sum, bool greedy)
{
    if (score->sums == NULL) score->sums = tt_calloc(item->prompt_count, sizeof *score->sums);
    if (score->greedy == NULL) score->greedy = tt_calloc(item->prompt_count, sizeof *score->greedy);
    if (score->sums == NULL || score->greedy == NULL) return TT_ERR_MEMORY;
    score->sums[choice] = sum;
    score->greedy[choice] = greedy;
    if (++score->done < item->prompt_count) return TT_OK;
    score->acc = item->kind == TT_ITEM_END ? greedy : (int64_t)best_of(score, item, false) == item->answer;
    score->acc_norm = (int64_t)best_of(score, item, true) == item->answer;
    return TT_OK;
}

/* The text without white space around it. */
static struct tt_span trimmed(struct tt_span text)
{
    static const char blanks[] = " \t\n\v\f\r";
    while (text.bytes > 0 && memchr(blanks, *text.data, sizeof blanks - 1) != NULL) {
        text.data++;
        text.bytes--;
    }
    while (text.bytes > 0 && memchr(blanks, text.data[text.bytes - 1], sizeof blanks - 1) != NULL)
        text.bytes--;
    return text;
}

/* A text without a match becomes a word that no target is. */
static tt_status extract(const struct tt_task_item *item, struct tt_span text, struct tt_span *answer)
{
    static const char none[] = "[invalid]";
    struct tt_answer_pattern *pattern = NULL;
    bool any = false;
    TT_TRY(tt_answer_pattern_compile(item->regex, &pattern));
    tt_status status = tt_answer_pattern_find(pattern, text, item->match, answer, &any);
    tt_answer_pattern_destroy(pattern);
    if (status != TT_OK) return status;
    *answer = any ? trimmed(*answer) : (struct tt_span){none, sizeof none - 1};
    return TT_OK;
}

tt_status tt_item_score_text(struct tt_item_score *score, const struct tt_task_item *item,
                             const struct tt_str *text)
{
    struct tt_span whole = {text->data != NULL ? text->data : "", text->bytes}, answer = whole;
    TT_TRY(tt_str_append(&score->text, whole.data, whole.bytes));
    if (item->regex.data != NULL) TT_TRY(extract(item, whole, &answer));
    if (item->strip) answer = trimmed(answer);
    TT_TRY(tt_str_append(&score->answer, answer.data, answer.bytes));
    score->exact_match = answer.bytes == item->target.bytes &&
                         (answer.bytes == 0 || memcmp(answer.data, item->target.data, answer.bytes) == 0);
    score->done = 1;
    return TT_OK;
}

tt_status tt_item_score_write(const struct tt_task_item *item, const struct tt_item_score *score,
                              struct tt_str *out)
{
    struct tt_json_value *line = tt_json_pack("{s:s, s:I}", "task", item->task, "line", (int64_t)item->line);
    if (item->kind == TT_ITEM_TEXT) {
        tt_json_set(line, "text",
                    tt_json_new_text((struct tt_span){tt_str_text(&score->text), score->text.bytes}));
        tt_json_set(line, "answer",
                    tt_json_new_text((struct tt_span){tt_str_text(&score->answer), score->answer.bytes}));
        tt_json_set(line, "exact_match", tt_json_new_real(score->exact_match));
    } else {
        struct tt_json_value *sums = tt_json_new_list(), *greedy = tt_json_new_list();
        for (size_t i = 0; i < item->prompt_count; i++) {
            tt_json_append(sums, tt_json_new_real(score->sums[i]));
            tt_json_append(greedy, tt_json_new_bool(score->greedy[i]));
        }
        tt_json_set(line, "log_likelihoods", sums);
        tt_json_set(line, "greedy", greedy);
        tt_json_set(line, "acc", tt_json_new_real(score->acc));
        if (item->kind == TT_ITEM_CHOICES) tt_json_set(line, "acc_norm", tt_json_new_real(score->acc_norm));
    }
    tt_status status = tt_json_write(line, 0, false, out);
    tt_json_release(line);
    return status == TT_OK ? tt_str_append_char(out, '\n') : status;
}

/* ---- Tasks ---- */

static double acc_of(const struct tt_item_score *score)
{
    return score->acc;
}

static double acc_norm_of(const struct tt_item_score *score)
{
    return score->acc_norm;
}

static double likelihood_of(const struct tt_item_score *score)
{
    return score->sums[0];
}

static double match_of(const struct tt_item_score *score)
{
    return score->exact_match;
}

static const struct metric {
    const char *name;
    unsigned kinds; /* bits of enum tt_item_kind */
    double (*of)(const struct tt_item_score *score);
    bool perplexity; /* e^-mean, else the mean */
} metrics[] = {
    {"acc", 1u << TT_ITEM_CHOICES | 1u << TT_ITEM_END, acc_of, false},
    {"acc_norm", 1u << TT_ITEM_CHOICES, acc_norm_of, false},
    {"perplexity", 1u << TT_ITEM_END, likelihood_of, true},
    {"exact_match", 1u << TT_ITEM_TEXT, match_of, false},
};

static bool is_task(const struct tt_task_item *item, const char *task, enum tt_item_kind kind)
{
    return item->kind == kind && strcmp(item->task, task) == 0;
}

/* {value, stderr}: the mean, and the standard error of it. */
static struct tt_json_value *aggregate(const struct tt_task_items *items, const struct tt_item_score *scores,
                                       const struct tt_task_item *first, const struct metric *metric)
{
    double sum = 0, squares = 0, count = 0;
    for (size_t i = 0; i < items->count; i++)
        if (is_task(&items->data[i], first->task, first->kind)) {
            sum += metric->of(&scores[i]);
            count++;
        }
    double mean = sum / count;
    for (size_t i = 0; i < items->count; i++)
        if (is_task(&items->data[i], first->task, first->kind))
            squares += (metric->of(&scores[i]) - mean) * (metric->of(&scores[i]) - mean);
    struct tt_json_value *value = tt_json_pack("{s:f}", "value", metric->perplexity ? exp(-mean) : mean);
    bool has_error = count > 1 && !metric->perplexity;
    tt_json_set(value, "stderr",
                has_error ? tt_json_new_real(sqrt(squares / (count - 1) / count)) : tt_json_new_null());
    return value;
}

static struct tt_json_value *score_task(const struct tt_task_items *items, const struct tt_item_score *scores,
                                        const struct tt_task_item *first)
{
    struct tt_json_value *values = tt_json_new_object();
    int64_t count = 0;
    for (size_t i = 0; i < items->count; i++) count += is_task(&items->data[i], first->task, first->kind);
    for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++)
        if ((metrics[m].kinds & 1u << first->kind) != 0)
            tt_json_set(values, metrics[m].name, aggregate(items, scores, first, &metrics[m]));
    return tt_json_pack("{s:s, s:I, s:o}", "task", first->task, "items", count, "metrics", values);
}

tt_status tt_task_scores_list(const struct tt_task_items *items, const struct tt_item_score *scores,
                              struct tt_json_value **list)
{
    struct tt_json_value *made = tt_json_new_list();
    for (size_t i = 0; i < items->count; i++) {
        bool known = false;
        for (size_t k = 0; k < i && !known; k++)
            known = is_task(&items->data[k], items->data[i].task, items->data[i].kind);
        if (!known) tt_json_append(made, score_task(items, scores, &items->data[i]));
    }
    *list = tt_json_finish(made);
    return *list != NULL ? TT_OK : TT_ERR_MEMORY;
}
