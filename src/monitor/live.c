#include "monitor/live.h"

#include <math.h>
#include <pthread.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/number.h"
#include "monitor/exposition.h"
#include "trimtab.h"

/* Seconds of a step, from a small model's on a CPU to a large one's over a slow network. */
static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                1,     2.5,    5,     10,   25,    50,   100, 250,  1000};
enum { BOUND_COUNT = sizeof bounds / sizeof *bounds };

/* Steps of unequal batches differ: one that takes this many times as long as the longest before is no hang. */
static const double slow_steps = 3.0;

/* The lock guards all but `config`. */
struct tt_live {
    struct tt_live_config config;
    pthread_mutex_t lock;
    bool attached, stepped, leads; /* leads: this process has rank 0 */
    struct tt_live_place place;
    struct tt_live_rank_step *ranks; /* [place.rank_count]; phases and rank_wait are sums */
    const char *activity;
    bool limited;
    double beat, longest_step; /* beat: tt_clock_seconds */
    struct tt_live_start start;
    struct tt_live_step last;
    double start_stamp, stamp; /* of the start and of the last step, since 1970 */
    int64_t counts[BOUND_COUNT + 1];
    double step_seconds;
    bool evaluated, saved;
    double eval_loss, save_seconds, save_stamp;
    struct tt_live_metric eval_metric;
    int64_t save_step;
};

tt_status tt_live_create(const struct tt_live_config *config, struct tt_live **out)
{
    struct tt_live *live = tt_calloc(1, sizeof *live);
    if (live == NULL) return TT_ERR_MEMORY;
    live->config = *config;
    live->activity = "waiting for the other ranks";
    pthread_mutex_init(&live->lock, NULL);
    *out = live;
    return TT_OK;
}

void tt_live_destroy(struct tt_live *live)
{
    if (live == NULL) return;
    pthread_mutex_destroy(&live->lock);
    tt_free(live->ranks);
    tt_free(live);
}

tt_status tt_live_attach(struct tt_live *live, const struct tt_live_place *place)
{
    if (live == NULL) return TT_OK;
    struct tt_live_rank_step *ranks = tt_calloc((size_t)place->rank_count, sizeof *ranks);
    if (ranks == NULL) return TT_ERR_MEMORY;
    pthread_mutex_lock(&live->lock);
    live->ranks = ranks;
    live->place = *place;
    live->leads = place->first_rank == 0;
    live->attached = true;
    live->activity = "loading";
    pthread_mutex_unlock(&live->lock);
    return TT_OK;
}

void tt_live_detach(struct tt_live *live)
{
    if (live == NULL) return;
    pthread_mutex_lock(&live->lock);
    live->place.last_beat = NULL;
    live->activity = "ending";
    live->limited = false;
    pthread_mutex_unlock(&live->lock);
}

void tt_live_activity(struct tt_live *live, const char *activity, bool limited)
{
    if (live == NULL) return;
    pthread_mutex_lock(&live->lock);
    live->activity = activity;
    live->limited = limited;
    live->beat = tt_clock_seconds();
    pthread_mutex_unlock(&live->lock);
}

/* The caller holds the lock. */
static struct tt_live_rank_step *find_rank(struct tt_live *live, int rank)
{
    int local = rank - live->place.first_rank;
    return live->attached && local >= 0 && local < live->place.rank_count ? &live->ranks[local] : NULL;
}

void tt_live_rank_step(struct tt_live *live, int rank, const struct tt_live_rank_step *step)
{
    if (live == NULL) return;
    pthread_mutex_lock(&live->lock);
    struct tt_live_rank_step *sums = find_rank(live, rank);
    if (sums != NULL) {
        struct tt_live_rank_step before = *sums;
        *sums = *step;
        for (int i = 0; i < TT_LIVE_PHASE_COUNT; i++) sums->phases[i] += before.phases[i];
        sums->rank_wait += before.rank_wait;
    }
    live->stepped = true;
    live->beat = tt_clock_seconds();
    pthread_mutex_unlock(&live->lock);
}

void tt_live_rank_seconds(struct tt_live *live, int rank, enum tt_live_phase phase, double seconds)
{
    if (live == NULL) return;
    pthread_mutex_lock(&live->lock);
    struct tt_live_rank_step *sums = find_rank(live, rank);
    if (sums != NULL) sums->phases[phase] += seconds;
    live->beat = tt_clock_seconds();
    pthread_mutex_unlock(&live->lock);
}

void tt_live_start(struct tt_live *live, const struct tt_live_start *start)
{
    if (live == NULL) return;
    pthread_mutex_lock(&live->lock);
    live->start = *start;
    live->start_stamp = tt_clock_unix_seconds();
    live->last = (struct tt_live_step){.step = start->step, .tokens = start->tokens};
    pthread_mutex_unlock(&live->lock);
}

void tt_live_step(struct tt_live *live, const struct tt_live_step *step)
{
    int bucket = 0;
    if (live == NULL) return;
    while (bucket < BOUND_COUNT && step->seconds > bounds[bucket]) bucket++;
    pthread_mutex_lock(&live->lock);
    live->last = *step;
    live->stamp = tt_clock_unix_seconds();
    live->counts[bucket]++;
    live->step_seconds += step->seconds;
    live->beat = tt_clock_seconds();
    if (step->seconds > live->longest_step) live->longest_step = step->seconds;
    pthread_mutex_unlock(&live->lock);
}

void tt_live_evaluation(struct tt_live *live, double loss, const struct tt_live_metric *metric)
{
    if (live == NULL) return;
    pthread_mutex_lock(&live->lock);
    live->evaluated = true;
    live->eval_loss = loss;
    live->eval_metric = metric != NULL ? *metric : (struct tt_live_metric){.value = NAN};
    pthread_mutex_unlock(&live->lock);
}

void tt_live_save(struct tt_live *live, int64_t step, double seconds)
{
    if (live == NULL) return;
    pthread_mutex_lock(&live->lock);
    live->saved = true;
    live->save_step = step;
    live->save_seconds = seconds;
    live->save_stamp = tt_clock_unix_seconds();
    pthread_mutex_unlock(&live->lock);
}

static void add(struct tt_exposition *exposition, enum tt_metric_kind kind, const char *name,
                const char *unit, const char *help, double value)
{
    struct tt_metric_family family = {name, kind, unit, help};
    tt_exposition_family(exposition, &family);
    tt_exposition_sample(exposition, "", value);
}

/* The metric has the name that all exporters of processes give it. */
static void add_process(struct tt_exposition *exposition)
{
    struct tt_process_memory memory = tt_process_memory_read();
    if (memory.resident > 0)
        add(exposition, TT_METRIC_GAUGE, "process_resident_memory_bytes", "bytes",
            "Memory of this process: the program, and buffers of processors as far as they were used.",
            (double)memory.resident);
}

static void add_ranks(const struct tt_live *live, struct tt_exposition *exposition)
{
    static const char *const phases[TT_LIVE_PHASE_COUNT] = {
        [TT_LIVE_DATA] = "data",        [TT_LIVE_GATHER] = "gather",       [TT_LIVE_COMPUTE] = "compute",
        [TT_LIVE_REDUCE] = "reduce",    [TT_LIVE_OPTIMIZER] = "optimizer", [TT_LIVE_SAVE] = "save",
        [TT_LIVE_EVALUATE] = "evaluate"};
    static const struct tt_metric_family
        time = {"trimtab_phase_seconds", TT_METRIC_COUNTER, "seconds", "Time of a rank by phase."},
        waits = {"trimtab_rank_wait_seconds", TT_METRIC_COUNTER, "seconds",
                 "Time in which a rank waited for the others at the end of its steps."},
        memory = {"trimtab_device_memory_bytes", TT_METRIC_GAUGE, "bytes",
                  "Device memory of a rank by purpose, at its peak."},
        peak = {"trimtab_device_memory_peak_bytes", TT_METRIC_GAUGE, "bytes",
                "Device memory of a rank, at its peak."};
    char label[96];
    int first = live->place.first_rank, count = live->place.rank_count;
    tt_exposition_family(exposition, &time);
    for (int r = 0; r < count; r++)
        for (int p = 0; p < TT_LIVE_PHASE_COUNT; p++) {
            tt_snprintf(label, sizeof label, "rank=\"%d\",phase=\"%s\"", first + r, phases[p]);
            tt_exposition_sample(exposition, label, live->ranks[r].phases[p]);
        }
    tt_exposition_family(exposition, &waits);
    for (int r = 0; r < count; r++) {
        tt_snprintf(label, sizeof label, "rank=\"%d\"", first + r);
        tt_exposition_sample(exposition, label, live->ranks[r].rank_wait);
    }
    tt_exposition_family(exposition, &memory);
    for (int r = 0; r < count; r++)
        for (int p = 0; p < live->config.purpose_count; p++) {
            if (live->ranks[r].bytes[p] <= 0) continue;
            tt_snprintf(label, sizeof label, "rank=\"%d\",kind=\"%s\"", first + r, live->config.purposes[p]);
            tt_exposition_sample(exposition, label, live->ranks[r].bytes[p]);
        }
    tt_exposition_family(exposition, &peak);
    for (int r = 0; r < count; r++) {
        tt_snprintf(label, sizeof label, "rank=\"%d\"", first + r);
        tt_exposition_sample(exposition, label, live->ranks[r].peak_bytes);
    }
}

/* Figures that do not exist yet have no sample: a loss of 0 would be one. */
static void add_last_step(const struct tt_live *live, struct tt_exposition *exposition)
{
    static const struct tt_metric_family step_seconds = {"trimtab_step_seconds", TT_METRIC_HISTOGRAM,
                                                         "seconds", "Time of the steps of this process."};
    const struct tt_live_step *last = &live->last;
    tt_exposition_family(exposition, &step_seconds);
    tt_exposition_histogram(exposition, bounds, live->counts, BOUND_COUNT, live->step_seconds);
    if (live->stamp <= 0) return;
    add(exposition, TT_METRIC_GAUGE, "trimtab_loss", NULL, "Loss of the last step.", last->loss);
    add(exposition, TT_METRIC_GAUGE, "trimtab_learning_rate", NULL, "Learning rate of the last step.",
        last->learning_rate);
    add(exposition, TT_METRIC_GAUGE, "trimtab_grad_norm", NULL,
        "Norm of the last step's gradient, before clipping.", last->grad_norm);
    add(exposition, TT_METRIC_GAUGE, "trimtab_last_step_timestamp_seconds", "seconds",
        "Time at the end of the last step, since 1970.", live->stamp);
}

static void add_metric(const struct tt_live_metric *metric, struct tt_exposition *exposition)
{
    char name[80];
    if (isnan(metric->value)) return;
    tt_snprintf(name, sizeof name, "trimtab_eval_%s", metric->name);
    add(exposition, TT_METRIC_GAUGE, name, NULL, metric->help, metric->value);
}

/* trimtab_tokens, or trimtab_images. */
static void add_counted(const struct tt_live *live, struct tt_exposition *exposition)
{
    char name[40], help[40];
    const char *unit = live->start.unit != NULL ? live->start.unit : "tokens";
    tt_snprintf(name, sizeof name, "trimtab_%.20s", unit);
    tt_snprintf(help, sizeof help, "%c%.20s of the run.", tt_ascii_upper(unit[0]), unit + 1);
    add(exposition, TT_METRIC_COUNTER, name, NULL, help, live->last.tokens);
}

static void add_run(const struct tt_live *live, struct tt_exposition *exposition)
{
    const struct tt_live_step *last = &live->last;
    add(exposition, TT_METRIC_COUNTER, "trimtab_steps", NULL, "Steps of the run, with those before a resume.",
        (double)last->step);
    add(exposition, TT_METRIC_GAUGE, "trimtab_planned_steps", NULL, "Steps of the whole run.",
        (double)live->start.total_steps);
    add_counted(live, exposition);
    add(exposition, TT_METRIC_COUNTER, "trimtab_model_flops", NULL,
        "Floating-point operations of the model in the run, without recomputation.", last->flops);
    add(exposition, TT_METRIC_COUNTER, "trimtab_restarts", NULL, "How often the run was started again.",
        live->start.restarts);
    add(exposition, TT_METRIC_GAUGE, "trimtab_start_timestamp_seconds", "seconds",
        "Time at which this process began to train, since 1970.", live->start_stamp);
    add(exposition, TT_METRIC_GAUGE, "trimtab_planned_memory_bytes", "bytes",
        "Device memory of a rank by the plan.", live->start.planned_bytes);
    add_last_step(live, exposition);
    if (live->evaluated)
        add(exposition, TT_METRIC_GAUGE, "trimtab_eval_loss", NULL, "Loss of the last evaluation.",
            live->eval_loss);
    if (live->evaluated) add_metric(&live->eval_metric, exposition);
    if (!live->saved) return;
    add(exposition, TT_METRIC_GAUGE, "trimtab_checkpoint_last_step", NULL,
        "Step of the last complete checkpoint.", (double)live->save_step);
    add(exposition, TT_METRIC_GAUGE, "trimtab_checkpoint_save_seconds", "seconds",
        "Time from the start of that save until it was durable.", live->save_seconds);
    add(exposition, TT_METRIC_GAUGE, "trimtab_checkpoint_last_timestamp_seconds", "seconds",
        "Time at which it was reported, since 1970.", live->save_stamp);
}

tt_status tt_live_metrics(struct tt_live *live, bool open_metrics, struct tt_str *text)
{
    static const struct tt_metric_family build = {"trimtab_build", TT_METRIC_INFO, NULL, "The program."};
    struct tt_exposition exposition = {.text = text, .open_metrics = open_metrics};
    tt_exposition_family(&exposition, &build);
    tt_exposition_sample(&exposition, "version=\"" TT_VERSION "\"", 1.0);
    pthread_mutex_lock(&live->lock);
    add(&exposition, TT_METRIC_GAUGE, "trimtab_ready", NULL, "1 once the ranks of the run have met.",
        live->attached);
    add_process(&exposition);
    if (live->attached) {
        add(&exposition, TT_METRIC_GAUGE, "trimtab_ranks", NULL, "Ranks of the run.", live->place.world_size);
        add_ranks(live, &exposition);
        if (live->leads) add_run(live, &exposition);
    }
    pthread_mutex_unlock(&live->lock);
    return tt_exposition_end(&exposition);
}

bool tt_live_is_healthy(struct tt_live *live, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&live->lock);
    double now = tt_clock_seconds(), beat = live->beat, limit = live->config.frozen_seconds;
    if (live->place.last_beat != NULL) beat = fmax(beat, live->place.last_beat(live->place.context));
    if (slow_steps * live->longest_step > limit) limit = slow_steps * live->longest_step;
    bool frozen = live->limited && live->stepped && now - beat > limit;
    if (frozen)
        tt_snprintf(why, why_bytes, "no sign of life for %.1f s (limit %.1f s) while %s after step %lld\n",
                    now - beat, limit, live->activity, (long long)live->last.step);
    else
        tt_snprintf(why, why_bytes, "ok: %s\n", live->activity);
    pthread_mutex_unlock(&live->lock);
    return !frozen;
}

bool tt_live_is_ready(struct tt_live *live, bool stepped, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&live->lock);
    bool ready = stepped ? live->stepped : live->attached;
    tt_snprintf(why, why_bytes, "%s: %s\n", ready ? "ok" : "not yet", live->activity);
    pthread_mutex_unlock(&live->lock);
    return ready;
}
