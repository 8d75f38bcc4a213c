#include "serve/serve_metrics.h"

#include <pthread.h>
#include <stdio.h>

#include "base/alloc.h"
#include "monitor/exposition.h"

/* A token of a small model takes less than a millisecond, a long answer of a large one minutes. */
static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                0.5,   1,      2.5,   5,    10,    30,   60,  120};
enum { BOUNDS = sizeof bounds / sizeof *bounds };

struct histogram {
    int64_t counts[BOUNDS + 1];
    double sum;
};

struct tt_serve_metrics {
    pthread_mutex_t lock;
    int64_t prompt_tokens, new_tokens, ends[TT_SERVE_ENDS], refusals[TT_SERVE_REFUSALS];
    struct histogram times[TT_SERVE_TIMES];
    struct tt_serve_state state;
};

tt_status tt_serve_metrics_create(struct tt_serve_metrics **out)
{
    struct tt_serve_metrics *metrics = tt_calloc(1, sizeof *metrics);
    if (metrics == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&metrics->lock, NULL);
    *out = metrics;
    return TT_OK;
}

void tt_serve_metrics_destroy(struct tt_serve_metrics *metrics)
{
    if (metrics == NULL) return;
    pthread_mutex_destroy(&metrics->lock);
    tt_free(metrics);
}

static void add(struct tt_serve_metrics *metrics, int64_t *to, int64_t value)
{
    pthread_mutex_lock(&metrics->lock);
    *to += value;
    pthread_mutex_unlock(&metrics->lock);
}

void tt_serve_count_prompt(struct tt_serve_metrics *metrics, int64_t tokens)
{
    add(metrics, &metrics->prompt_tokens, tokens);
}

void tt_serve_count_tokens(struct tt_serve_metrics *metrics, int64_t tokens)
{
    add(metrics, &metrics->new_tokens, tokens);
}

void tt_serve_count_end(struct tt_serve_metrics *metrics, enum tt_serve_end end)
{
    add(metrics, &metrics->ends[end], 1);
}

void tt_serve_count_refusal(struct tt_serve_metrics *metrics, enum tt_serve_refusal refusal)
{
    add(metrics, &metrics->refusals[refusal], 1);
}

void tt_serve_observe(struct tt_serve_metrics *metrics, enum tt_serve_time time, double seconds)
{
    struct histogram *histogram = &metrics->times[time];
    int bin = 0;
    while (bin < BOUNDS && seconds > bounds[bin]) bin++;
    pthread_mutex_lock(&metrics->lock);
    histogram->counts[bin]++;
    histogram->sum += seconds;
    pthread_mutex_unlock(&metrics->lock);
}

void tt_serve_publish(struct tt_serve_metrics *metrics, const struct tt_serve_state *state)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->state = *state;
    pthread_mutex_unlock(&metrics->lock);
}

static void write_one(struct tt_exposition *exposition, enum tt_metric_kind kind, const char *name,
                      const char *unit, const char *help, double value)
{
    const struct tt_metric_family family = {name, kind, unit, help};
    tt_exposition_family(exposition, &family);
    tt_exposition_sample(exposition, "", value);
}

static void write_labelled(struct tt_exposition *exposition, const char *name, const char *help,
                           const char *label, const char *const *words, const int64_t *values, int count)
{
    const struct tt_metric_family family = {name, TT_METRIC_COUNTER, NULL, help};
    char text[64];
    tt_exposition_family(exposition, &family);
    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%s=\"%s\"", label, words[i]);
        tt_exposition_sample(exposition, text, (double)values[i]);
    }
}

static void write_state(struct tt_exposition *exposition, const struct tt_serve_state *state)
{
    write_one(exposition, TT_METRIC_GAUGE, "trimtab_serve_answers_running", NULL, "Answers being generated.",
              (double)state->running);
    write_one(exposition, TT_METRIC_GAUGE, "trimtab_serve_answers_waiting", NULL,
              "Answers that wait for others to end.", (double)state->waiting);
    write_one(exposition, TT_METRIC_GAUGE, "trimtab_serve_answers_running_max", NULL,
              "Answers that can run at the same time (max_running).", (double)state->slots);
    write_one(exposition, TT_METRIC_GAUGE, "trimtab_serve_cache_usage_ratio", "ratio",
              "Share of rank 0's key/value cache that holds tokens.",
              state->cache > 0 ? (double)state->cached / (double)state->cache : 0);
    write_one(exposition, TT_METRIC_COUNTER, "trimtab_serve_cached_prompt_tokens", NULL,
              "Tokens of prompts that rank 0 had in its cache and did not compute again.",
              (double)state->reused);
    write_one(exposition, TT_METRIC_COUNTER, "trimtab_serve_passes", NULL, "Passes of the model on rank 0.",
              (double)state->passes);
}

static void write_times(struct tt_exposition *exposition, const struct histogram *times)
{
    static const struct tt_metric_family families[TT_SERVE_TIMES] = {
        [TT_SERVE_QUEUE_TIME] = {"trimtab_serve_queue_seconds", TT_METRIC_HISTOGRAM, "seconds",
                                 "Time of a request until its first answer is begun."},
        [TT_SERVE_FIRST_TOKEN] = {"trimtab_serve_time_to_first_token_seconds", TT_METRIC_HISTOGRAM, "seconds",
                                  "Time of a request until the first token of an answer."},
        [TT_SERVE_TOKEN_TIME] = {"trimtab_serve_time_per_token_seconds", TT_METRIC_HISTOGRAM, "seconds",
                                 "Time between the tokens of an answer, the mean of each answer."},
        [TT_SERVE_REQUEST_TIME] = {"trimtab_serve_request_seconds", TT_METRIC_HISTOGRAM, "seconds",
                                   "Time of a request until the end of its last answer."},
    };
    for (int t = 0; t < TT_SERVE_TIMES; t++) {
        tt_exposition_family(exposition, &families[t]);
        tt_exposition_histogram(exposition, bounds, times[t].counts, BOUNDS, times[t].sum);
    }
}

tt_status tt_serve_metrics_write(struct tt_serve_metrics *metrics, bool open_metrics, struct tt_str *text)
{
    static const char *const ends[] = {"stop", "length", "tool_calls", "cancelled"};
    static const char *const refusals[] = {"invalid", "no_key", "queue_full", "client_limit", "stopping"};
    struct tt_exposition exposition = {.text = text, .open_metrics = open_metrics};
    pthread_mutex_lock(&metrics->lock);
    write_state(&exposition, &metrics->state);
    write_one(&exposition, TT_METRIC_COUNTER, "trimtab_serve_prompt_tokens", NULL,
              "Tokens of the prompts of requests that were taken.", (double)metrics->prompt_tokens);
    write_one(&exposition, TT_METRIC_COUNTER, "trimtab_serve_generated_tokens", NULL, "Tokens of answers.",
              (double)metrics->new_tokens);
    write_labelled(&exposition, "trimtab_serve_answers", "Answers that ended, by their end.", "end", ends,
                   metrics->ends, TT_SERVE_ENDS);
    write_labelled(&exposition, "trimtab_serve_refused_requests", "Requests that were turned away.", "reason",
                   refusals, metrics->refusals, TT_SERVE_REFUSALS);
    write_times(&exposition, metrics->times);
    pthread_mutex_unlock(&metrics->lock);
    return tt_exposition_end(&exposition);
}
