#include "data/step_flow.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"

enum {
    STEPS_MAX = 4,
    AHEAD = 2
}; /* those before and at the last one that was asked for, and those ahead of it */

struct step {
    int64_t number, epoch; /* number -1: empty */
    struct tt_dataset *dataset;
    struct tt_sampler *sampler;
    struct tt_flow_state end;
    int users;
};

struct tt_step_flow {
    struct tt_step_flow_config config;
    int64_t first_step;
    struct tt_flow_state start; /* of first_step */
    struct tt_row_shuffle *shuffle;
    struct tt_window_reader *reader;
    struct tt_row_window window;
    size_t used; /* units of the window */
    size_t batch_units;
    struct tt_thread *thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool started, stop, failed;
    struct tt_error error;
    struct step steps[STEPS_MAX];
    int64_t asked, made; /* the last step that was asked for; steps that were made, from 0 on */
    struct tt_dataset_report report;
};

static void drop_step(struct step *step)
{
    tt_sampler_destroy(step->sampler);
    tt_dataset_destroy(step->dataset);
    *step = (struct step){.number = -1};
}

tt_status tt_step_flow_create(const struct tt_step_flow_config *config, struct tt_step_flow **out)
{
    tt_status status = TT_OK;
    struct tt_step_flow *flow = tt_calloc(1, sizeof *flow);
    if (flow == NULL) return TT_ERR_MEMORY;
    flow->config = *config;
    flow->start.place.from.line = 1;
    flow->batch_units = (size_t)(config->sampler.micro_batch_size * config->sampler.accumulation) *
                        (size_t)config->sampler.world_size;
    for (int i = 0; i < STEPS_MAX; i++) flow->steps[i].number = -1;
    pthread_mutex_init(&flow->lock, NULL);
    pthread_cond_init(&flow->changed, NULL);
    TT_GO(tt_row_shuffle_create(&config->rows, &flow->shuffle));
    TT_GO(tt_window_reader_create(&config->window, &flow->reader));
    *out = flow;
    return TT_OK;
out:
    tt_step_flow_destroy(flow);
    return status;
}

void tt_step_flow_start(struct tt_step_flow *flow, int64_t step, const struct tt_flow_state *state)
{
    flow->start = *state;
    flow->first_step = flow->made = flow->asked = step;
}

void tt_step_flow_destroy(struct tt_step_flow *flow)
{
    if (flow == NULL) return;
    struct tt_error error;
    tt_error_copy(&error);
    pthread_mutex_lock(&flow->lock);
    flow->stop = true;
    pthread_cond_broadcast(&flow->changed);
    pthread_mutex_unlock(&flow->lock);
    if (flow->thread != NULL && tt_thread_join(flow->thread) != TT_OK) tt_error_clear();
    (void)tt_error_restore(&error);
    for (int i = 0; i < STEPS_MAX; i++) drop_step(&flow->steps[i]);
    tt_row_window_deinit(&flow->window);
    tt_window_reader_destroy(flow->reader);
    tt_row_shuffle_destroy(flow->shuffle);
    pthread_cond_destroy(&flow->changed);
    pthread_mutex_destroy(&flow->lock);
    tt_free(flow);
}

/* ---- Making steps, in the thread ---- */

static tt_status fail_without_units(const struct tt_step_flow *flow)
{
    const struct tt_dataset_report *report = &flow->report;
    tt_fail(TT_ERR_DATA,
            "'%s' has no row that can be used: of %lld rows of an epoch %lld are too long, %lld have no "
            "supervised token",
            flow->config.rows.sources->sources[0].name, (long long)report->rows, (long long)report->dropped,
            (long long)report->without_supervision);
    tt_hint("a row needs at least two tokens, and a supervised one within max_length");
    return TT_ERR_DATA;
}

/* The next window that has units. An epoch without any is an error. */
static tt_status next_window(struct tt_step_flow *flow)
{
    for (int ends = 0; flow->used == flow->window.unit_count;) {
        tt_row_window_deinit(&flow->window);
        flow->used = 0;
        TT_TRY(tt_window_read(flow->reader, flow->shuffle, &flow->window));
        pthread_mutex_lock(&flow->lock);
        tt_dataset_report_add(&flow->report, &flow->window.report);
        bool stops = flow->stop;
        pthread_mutex_unlock(&flow->lock);
        if (stops) return TT_ERR_CANCELLED; /* nobody waits */
        ends += flow->window.unit_count == 0 && flow->window.ends_epoch;
        if (ends > 1) return fail_without_units(flow);
    }
    return TT_OK;
}

static tt_status add_unit(const struct tt_row_window *window, size_t unit, struct tt_store *store)
{
    for (size_t i = window->units[unit]; i < window->units[unit + 1]; i++) {
        const struct tt_window_piece *piece = &window->pieces[i];
        const struct tt_store_sample *sample = &window->store.samples[piece->sample];
        const uint64_t at = sample->first + (uint64_t)piece->first;
        if (piece->count == sample->count)
            TT_TRY(tt_store_append_sample(store, &window->store, piece->sample));
        else
            TT_TRY(tt_store_append(store, window->store.ids + at, window->store.supervised + at, piece->count,
                                   NULL, NULL));
    }
    return TT_OK;
}

static tt_status make_units(struct tt_step_flow *flow, struct step *step, uint32_t *firsts)
{
    for (size_t unit = 0; unit < flow->batch_units; unit++) {
        if (flow->used == flow->window.unit_count) TT_TRY(next_window(flow));
        if (unit == 0) step->epoch = flow->window.place.epoch;
        TT_TRY(add_unit(&flow->window, flow->used++, &step->dataset->store));
        firsts[unit + 1] = (uint32_t)step->dataset->store.sample_count;
    }
    step->end = (struct tt_flow_state){flow->window.place, (int64_t)flow->used};
    return TT_OK;
}

static tt_status make_step(struct tt_step_flow *flow, struct step *step)
{
    tt_status status = TT_OK;
    struct tt_sampler_config sampler = flow->config.sampler;
    uint32_t *firsts = tt_calloc(flow->batch_units + 1, sizeof *firsts);
    step->dataset = tt_calloc(1, sizeof *step->dataset);
    if (firsts == NULL || step->dataset == NULL) TT_GO(TT_ERR_MEMORY);
    step->dataset->store.group_size = tt_data_samples_each(flow->config.window.config);
    TT_GO(make_units(flow, step, firsts));
    if (flow->config.window.config->packing) {
        sampler.packs = firsts;
        sampler.pack_count = flow->batch_units;
    }
    TT_GO(tt_sampler_create(step->dataset, &sampler, &step->sampler));
out:
    tt_free(firsts);
    if (status != TT_OK) drop_step(step);
    return status;
}

/* Goes on where the start says: the window is read again, and its first units were taken. */
static tt_status seek(struct tt_step_flow *flow)
{
    const struct tt_flow_state *start = &flow->start;
    TT_TRY(tt_row_shuffle_seek(flow->shuffle, &start->place));
    if (start->units == 0) return TT_OK;
    TT_TRY(tt_window_read(flow->reader, flow->shuffle, &flow->window));
    flow->used = (size_t)start->units;
    if (flow->used <= flow->window.unit_count) return TT_OK;
    tt_fail(TT_ERR_DATA,
            "%lld samples or packs of the rows at the place to go on were used, and there are %zu",
            (long long)start->units, flow->window.unit_count);
    tt_hint("data of a run must not change: restore the files that the run began with");
    return TT_ERR_DATA;
}

/* Room for a step: one that nobody uses, and nobody asks for again. With the lock. */
static struct step *find_room(struct tt_step_flow *flow)
{
    if (flow->made > flow->asked + AHEAD) return NULL;
    for (int i = 0; i < STEPS_MAX; i++)
        if (flow->steps[i].number < 0 ||
            (flow->steps[i].users == 0 && flow->steps[i].number < flow->asked - 1))
            return &flow->steps[i];
    return NULL;
}

static tt_status make_all(struct tt_step_flow *flow)
{
    TT_TRY(seek(flow));
    for (;;) {
        struct step made = {.number = -1}, *room = NULL;
        TT_TRY(make_step(flow, &made));
        pthread_mutex_lock(&flow->lock);
        while (!flow->stop && (room = find_room(flow)) == NULL)
            pthread_cond_wait(&flow->changed, &flow->lock);
        if (room != NULL) {
            drop_step(room);
            made.number = flow->made++;
            *room = made;
            pthread_cond_broadcast(&flow->changed);
        }
        bool stops = flow->stop;
        pthread_mutex_unlock(&flow->lock);
        if (room == NULL) drop_step(&made);
        if (stops) return TT_OK;
    }
}

static tt_status work(void *argument)
{
    struct tt_step_flow *flow = argument;
    if (make_all(flow) == TT_OK) return TT_OK;
    pthread_mutex_lock(&flow->lock);
    flow->failed = true;
    tt_error_copy(&flow->error);
    pthread_cond_broadcast(&flow->changed);
    pthread_mutex_unlock(&flow->lock);
    return TT_OK;
}

/* ---- Steps for the ranks ---- */

static struct step *find_step(struct tt_step_flow *flow, int64_t number)
{
    for (int i = 0; i < STEPS_MAX; i++)
        if (flow->steps[i].number == number) return &flow->steps[i];
    return NULL;
}

tt_status tt_step_flow_take(struct tt_step_flow *flow, int64_t step, const struct tt_sampler **sampler,
                            int64_t *epoch)
{
    tt_status status = TT_OK;
    struct step *found = NULL;
    pthread_mutex_lock(&flow->lock);
    if (!flow->started) status = tt_thread_start("stream", work, flow, &flow->thread);
    flow->started = status == TT_OK;
    if (step > flow->asked) flow->asked = step;
    pthread_cond_broadcast(&flow->changed);
    while (status == TT_OK && (found = find_step(flow, step)) == NULL) {
        if (step < flow->made)
            status = tt_fail(TT_ERR_INTERNAL, "step %lld of the stream is gone", (long long)step);
        else if (flow->failed)
            status = tt_error_restore(&flow->error);
        else
            pthread_cond_wait(&flow->changed, &flow->lock);
    }
    if (found != NULL) {
        found->users++;
        *sampler = found->sampler;
        *epoch = found->epoch;
    }
    pthread_mutex_unlock(&flow->lock);
    return status;
}

void tt_step_flow_give_back(struct tt_step_flow *flow, int64_t step)
{
    pthread_mutex_lock(&flow->lock);
    struct step *found = find_step(flow, step);
    if (found != NULL) found->users--;
    pthread_cond_broadcast(&flow->changed);
    pthread_mutex_unlock(&flow->lock);
}

tt_status tt_step_flow_state(struct tt_step_flow *flow, int64_t done, struct tt_flow_state *state)
{
    tt_status status = TT_OK;
    *state = flow->start;
    if (done <= flow->first_step) return TT_OK;
    pthread_mutex_lock(&flow->lock);
    const struct step *found = find_step(flow, done - 1);
    if (found != NULL)
        *state = found->end;
    else
        status = tt_fail(TT_ERR_INTERNAL, "step %lld of the stream is gone", (long long)done);
    pthread_mutex_unlock(&flow->lock);
    return status;
}

struct tt_batch_limits tt_step_flow_limits(const struct tt_step_flow *flow, int64_t max_length)
{
    const struct tt_data_config *config = flow->config.window.config;
    const int64_t each = (int64_t)tt_data_samples_each(config), units = flow->config.sampler.micro_batch_size;
    const int64_t pack = flow->config.window.pack_length;
    const int64_t tokens = units * (config->packing ? pack : each * max_length);
    return (struct tt_batch_limits){.tokens = tokens,
                                    .sequences = config->packing ? tokens : units * each,
                                    .rows = tokens,
                                    .copies = flow->config.sampler.shares ? each : 0,
                                    .keys = tokens,
                                    .all_rows = tokens,
                                    .length = config->packing && pack < max_length ? pack : max_length};
}
