#include "backend/cuda/conv/cudnn_plans.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cudnn/store.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

enum { NAME_BYTES = 512, WHY_BYTES = 200 };

struct tt_cudnn_conv_entry {
    struct tt_cudnn_conv_shape shape;
    struct tt_cudnn_plan *plan; /* NULL: none, our own kernels serve the shape */
};

void tt_cudnn_conv_plans_deinit(struct tt_cudnn_conv_plans *plans)
{
    for (size_t i = 0; i < plans->count; i++) {
        if (plans->entries[i].plan != NULL) tt_cudnn_plan_deinit(plans->entries[i].plan);
        tt_free(plans->entries[i].plan);
    }
    tt_free(plans->entries);
    tt_free(plans->wanted);
    *plans = (struct tt_cudnn_conv_plans){0};
}

/* Everything that a plan depends on, as text. */
static void name_plan(const struct tt_cudnn_conv_plans *plans, const struct tt_cudnn_conv_shape *shape,
                      char name[NAME_BYTES])
{
    int used = snprintf(name, NAME_BYTES, "trimtab convolution 1, cuDNN %zu, %s,", plans->cudnn->version,
                        plans->device);
    const int64_t *members = (const int64_t *)shape;
    for (size_t i = 0; i < sizeof *shape / sizeof *members && used > 0 && used < NAME_BYTES; i++)
        used += snprintf(name + used, (size_t)(NAME_BYTES - used), " %lld", (long long)members[i]);
}

/* The part of a name that differs between shapes, for messages. */
static const char *shape_in(const char *name)
{
    return name + strcspn(name, ",");
}

static void describe(struct tt_cudnn_graph *graph, const void *shape)
{
    tt_cudnn_conv_graph(graph, shape);
}

static struct tt_cudnn_recipe recipe_of(const struct tt_cudnn_conv_plans *plans,
                                        const struct tt_cudnn_conv_shape *shape)
{
    return (struct tt_cudnn_recipe){.kind = "convolution",
                                    .describe = describe,
                                    .shape = shape,
                                    .workspace_limit = plans->workspace_limit};
}

static tt_status obtain(const struct tt_cudnn_conv_plans *plans, const struct tt_cudnn_conv_shape *shape,
                        struct tt_cudnn_plan *plan)
{
    struct tt_cudnn_recipe recipe = recipe_of(plans, shape);
    char name[NAME_BYTES];
    bool stored;
    name_plan(plans, shape, name);
    double start = tt_clock_seconds();
    TT_TRY(tt_cudnn_store_obtain(&recipe, plans->cudnn, name, plan, &stored));
    tt_debug("convolution: plan%s %s in %.0f ms", shape_in(name), stored ? "read" : "made",
             (tt_clock_seconds() - start) * 1e3);
    return TT_OK;
}

/* Adds an entry with the plan, which it takes; NULL: without one. */
static const struct tt_cudnn_conv_entry *add(struct tt_cudnn_conv_plans *plans,
                                             const struct tt_cudnn_conv_shape *shape,
                                             const struct tt_cudnn_plan *plan)
{
    struct tt_cudnn_plan *own = plan != NULL ? tt_calloc(1, sizeof *own) : NULL;
    if ((plan != NULL && own == NULL) || tt_grow(&plans->entries, plans->count, &plans->capacity) != 0) {
        tt_free(own);
        return NULL;
    }
    if (own != NULL) *own = *plan;
    struct tt_cudnn_conv_entry *entry = &plans->entries[plans->count++];
    *entry = (struct tt_cudnn_conv_entry){.shape = *shape, .plan = own};
    return entry;
}

/* A failure is an entry without a plan, so that it is not tried again. */
static const struct tt_cudnn_conv_entry *add_refused(struct tt_cudnn_conv_plans *plans,
                                                     const struct tt_cudnn_conv_shape *shape, const char *why)
{
    char name[NAME_BYTES];
    name_plan(plans, shape, name);
    tt_debug("convolution: cuDNN has no plan%s: %s", shape_in(name), why);
    return add(plans, shape, NULL);
}

static const struct tt_cudnn_conv_entry *make(struct tt_cudnn_conv_plans *plans,
                                              const struct tt_cudnn_conv_shape *shape)
{
    struct tt_cudnn_plan plan = {0};
    const struct tt_cudnn_conv_entry *entry;
    if (obtain(plans, shape, &plan) == TT_OK) {
        entry = add(plans, shape, &plan);
        if (entry == NULL) tt_cudnn_plan_deinit(&plan);
    } else {
        entry = add_refused(plans, shape, tt_error_last()->message);
        tt_error_clear();
    }
    return entry;
}

static const struct tt_cudnn_conv_entry *look_up(struct tt_cudnn_conv_plans *plans,
                                                 const struct tt_cudnn_conv_shape *shape)
{
    for (size_t k = 0; k < plans->count; k++) {
        size_t i = (plans->next + k) % plans->count;
        if (memcmp(&plans->entries[i].shape, shape, sizeof *shape) != 0) continue;
        plans->next = i + 1;
        return &plans->entries[i];
    }
    return NULL;
}

/* A shape that cannot be remembered is made at its first use. */
static void remember(struct tt_cudnn_conv_plans *plans, const struct tt_cudnn_conv_shape *shape)
{
    for (size_t i = 0; i < plans->wanted_count; i++)
        if (memcmp(&plans->wanted[i], shape, sizeof *shape) == 0) return;
    if (tt_grow(&plans->wanted, plans->wanted_count, &plans->wanted_capacity) != 0) {
        tt_error_clear();
        return;
    }
    plans->wanted[plans->wanted_count++] = *shape;
}

const struct tt_cudnn_plan *tt_cudnn_conv_plans_find(struct tt_cudnn_conv_plans *plans,
                                                     const struct tt_cudnn_conv_shape *shape, bool *pending)
{
    const struct tt_cudnn_conv_entry *entry = look_up(plans, shape);
    *pending = plans->collects && (entry == NULL || entry->plan != NULL);
    if (plans->collects) {
        if (entry == NULL) remember(plans, shape);
        return NULL;
    }
    if (entry == NULL) entry = make(plans, shape);
    return entry != NULL ? entry->plan : NULL;
}

void tt_cudnn_conv_plans_collect(struct tt_cudnn_conv_plans *plans, bool collects)
{
    plans->collects = collects;
    if (collects) plans->wanted_count = 0;
}

/* A plan that a thread builds. */
struct work {
    char *json; /* NULL: another process has stored the plan, or it could not be written */
    size_t bytes;
    bool refused; /* for the reason in `why` */
    char why[WHY_BYTES];
};

struct pool {
    const struct tt_cudnn_conv_plans *plans;
    struct work *works; /* [wanted_count] */
    atomic_size_t next;
};

static void build_one(const struct tt_cudnn_conv_plans *plans, const struct tt_cudnn *cudnn,
                      const struct tt_cudnn_conv_shape *shape, struct work *work)
{
    struct tt_cudnn_recipe recipe = recipe_of(plans, shape);
    char name[NAME_BYTES];
    struct tt_cudnn_plan plan = {0};
    name_plan(plans, shape, name);
    if (tt_cudnn_store_has(recipe.kind, name)) return;
    double start = tt_clock_seconds();
    tt_status status = tt_cudnn_recipe_build(&recipe, cudnn, &plan);
    if (status == TT_OK) {
        if (tt_cudnn_plan_write(&plan, &work->json, &work->bytes) == TT_OK)
            tt_cudnn_store_keep(recipe.kind, name, work->json, work->bytes);
        tt_cudnn_plan_deinit(&plan);
        tt_debug("convolution: plan%s made in %.0f ms by a thread", shape_in(name),
                 (tt_clock_seconds() - start) * 1e3);
    } else if (status == TT_ERR_UNSUPPORTED) {
        work->refused = true;
        snprintf(work->why, sizeof work->why, "%.199s", tt_error_last()->message);
    }
    tt_error_clear();
}

/* GPUs of a machine begin at different shapes: what one has stored the others do not build. */
static tt_status run_thread(void *argument)
{
    struct pool *pool = argument;
    const struct tt_cudnn_conv_plans *plans = pool->plans;
    struct tt_cudnn cudnn;
    size_t count = plans->wanted_count, first = (size_t)plans->index * count / 8;
    if (cudaSetDevice(plans->index) != cudaSuccess || tt_cudnn_share(plans->cudnn, &cudnn) != TT_OK) {
        tt_error_clear();
        return TT_OK; /* the other threads, or the first use */
    }
    for (size_t i; (i = atomic_fetch_add(&pool->next, 1)) < count;) {
        size_t at = (first + i) % count;
        build_one(plans, &cudnn, &plans->wanted[at], &pool->works[at]);
    }
    tt_cudnn_unshare(&cudnn);
    return TT_OK;
}

/* Plans that a thread has built become entries. Others, which another process has stored meanwhile or whose thread
 * failed, are read or built here. */
static tt_status take_over(struct tt_cudnn_conv_plans *plans, const struct tt_cudnn_conv_shape *shape,
                           const struct work *work)
{
    struct tt_cudnn_plan plan = {0};
    const struct tt_cudnn_conv_entry *entry = NULL;
    if (work->refused) {
        entry = add_refused(plans, shape, work->why);
    } else if (work->json != NULL &&
               tt_cudnn_plan_read(plans->cudnn, work->json, work->bytes, &plan) == TT_OK) {
        entry = add(plans, shape, &plan);
        if (entry == NULL) tt_cudnn_plan_deinit(&plan);
    } else {
        tt_error_clear();
        entry = make(plans, shape);
    }
    return entry != NULL ? TT_OK : tt_fail(TT_ERR_MEMORY, "no memory for the plan of a convolution");
}

/* Plans that are stored become entries; the others stay wanted. */
static tt_status take_stored(struct tt_cudnn_conv_plans *plans)
{
    size_t left = 0;
    for (size_t i = 0; i < plans->wanted_count; i++) {
        struct tt_cudnn_recipe recipe = recipe_of(plans, &plans->wanted[i]);
        struct tt_cudnn_plan plan = {0};
        char name[NAME_BYTES];
        name_plan(plans, &plans->wanted[i], name);
        if (!tt_cudnn_store_read(&recipe, plans->cudnn, name, &plan)) {
            plans->wanted[left++] = plans->wanted[i];
        } else if (add(plans, &plans->wanted[i], &plan) == NULL) {
            tt_cudnn_plan_deinit(&plan);
            return tt_fail(TT_ERR_MEMORY, "no memory for the plan of a convolution");
        }
    }
    plans->wanted_count = left;
    return TT_OK;
}

tt_status tt_cudnn_conv_plans_make(struct tt_cudnn_conv_plans *plans, int threads, size_t *made)
{
    *made = 0;
    TT_TRY(take_stored(plans));
    tt_status status = TT_OK;
    struct pool pool = {.plans = plans, .works = tt_calloc(plans->wanted_count + 1, sizeof *pool.works)};
    if (pool.works == NULL) return TT_ERR_MEMORY;
    if (plans->wanted_count < (size_t)threads) threads = (int)plans->wanted_count;
    /* A thread that cannot be started leaves its share to the others. */
    if (threads > 0 && tt_threads_run("cudnn plans", threads, run_thread, &pool) != TT_OK) tt_error_clear();
    for (size_t i = 0; i < plans->wanted_count; i++) {
        if (status == TT_OK) status = take_over(plans, &plans->wanted[i], &pool.works[i]);
        *made += pool.works[i].json != NULL;
        tt_free(pool.works[i].json);
    }
    tt_free(pool.works);
    plans->wanted_count = 0;
    return status;
}
