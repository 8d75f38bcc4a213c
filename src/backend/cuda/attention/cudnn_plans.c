#include "backend/cuda/attention/cudnn_plans.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cudnn/store.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    SEQUENCES_MIN = 32,
    TOKENS_MIN = 1024,
    TOKENS_STEP = 32768,
    TOKENS_SLACK = 4, /* a plan serves batches with at least a quarter of its tokens, half of its sequences */
    SEQUENCES_SLACK = 2,
    NAME_BYTES = 512
};

struct tt_cudnn_entry {
    struct tt_cudnn_shape shape;
    struct tt_cudnn_plan *plan; /* NULL: no plan, for the reason in `why` */
    char why[200];
};

int64_t tt_cudnn_round_sequences(int64_t count)
{
    int64_t room = SEQUENCES_MIN;
    while (room < count) room *= 2;
    return room;
}

int64_t tt_cudnn_round_tokens(int64_t count)
{
    if (count > TOKENS_STEP) return (count + TOKENS_STEP - 1) / TOKENS_STEP * TOKENS_STEP;
    int64_t room = TOKENS_MIN;
    while (room < count) room *= 2;
    return room;
}

/* The name of a stored plan: everything that it depends on, as text. */
static void name_plan(const struct tt_cudnn_plans *plans, const struct tt_cudnn_shape *s,
                      char name[NAME_BYTES])
{
    snprintf(
        name, NAME_BYTES,
        "trimtab attention 2, cuDNN %zu, %s, H %lld K %lld E %lld B %lld T %lld, strides %lld %lld %lld %lld "
        "%lld %lld %lld %lld, backward %lld stats %lld window %lld dense %lld",
        plans->cudnn->version, plans->device, (long long)s->heads, (long long)s->kv_heads,
        (long long)s->head_dim, (long long)s->sequences, (long long)s->tokens, (long long)s->q,
        (long long)s->k, (long long)s->v, (long long)s->o, (long long)s->dq, (long long)s->sums,
        (long long)s->dk, (long long)s->dv, (long long)s->backward, (long long)s->stats, (long long)s->window,
        (long long)s->dense);
}

static void describe(struct tt_cudnn_graph *graph, const void *shape)
{
    tt_cudnn_attention_graph(graph, shape);
}

static tt_status obtain(const struct tt_cudnn_plans *plans, const struct tt_cudnn_shape *shape,
                        struct tt_cudnn_plan *plan)
{
    struct tt_cudnn_recipe recipe = {
        .kind = "attention", .describe = describe, .shape = shape, .workspace_limit = plans->workspace_limit};
    char name[NAME_BYTES];
    bool stored;
    name_plan(plans, shape, name);
    double start = tt_clock_seconds();
    TT_TRY(tt_cudnn_store_obtain(&recipe, plans->cudnn, name, plan, &stored));
    tt_debug("attention: %s%s plan for %lld x %lld tokens, %lld:%lld heads of %lld, %s in %.0f ms",
             shape->dense ? "dense " : "", shape->backward ? "backward" : "forward",
             (long long)shape->sequences, (long long)shape->tokens, (long long)shape->heads,
             (long long)shape->kv_heads, (long long)shape->head_dim, stored ? "read" : "made",
             (tt_clock_seconds() - start) * 1e3);
    return TT_OK;
}

/* Adds an entry and makes its plan. A failure is stored too, so that it is not tried again. */
static const struct tt_cudnn_entry *add(struct tt_cudnn_plans *plans, const struct tt_cudnn_shape *shape)
{
    struct tt_cudnn_plan *plan = tt_calloc(1, sizeof *plan);
    if (plan == NULL) return NULL;
    if (tt_grow(&plans->entries, plans->count, &plans->capacity) != 0) {
        tt_free(plan);
        return NULL;
    }
    struct tt_cudnn_entry *entry = &plans->entries[plans->count++];
    *entry = (struct tt_cudnn_entry){.shape = *shape, .plan = plan};
    if (obtain(plans, shape, plan) != TT_OK) {
        snprintf(entry->why, sizeof entry->why, "%.199s", tt_error_last()->message);
        tt_error_clear();
        tt_free(plan);
        entry->plan = NULL;
    }
    return entry;
}

/* Whether a plan for `made` can run `wanted`; a plan for fewer tokens is better. A dense plan has no slack. */
static bool covers(const struct tt_cudnn_shape *made, const struct tt_cudnn_shape *wanted)
{
    if (made->dense) return false;
    struct tt_cudnn_shape alike = *wanted;
    alike.sequences = made->sequences;
    alike.tokens = made->tokens;
    return memcmp(made, &alike, sizeof alike) == 0 && made->sequences >= wanted->sequences &&
           made->sequences <= SEQUENCES_SLACK * wanted->sequences && made->tokens >= wanted->tokens &&
           made->tokens <= TOKENS_SLACK * wanted->tokens;
}

const struct tt_cudnn_plan *tt_cudnn_plans_find(struct tt_cudnn_plans *plans,
                                                const struct tt_cudnn_shape *shape, int64_t *made_sequences,
                                                char *why, size_t why_bytes)
{
    const struct tt_cudnn_entry *best = NULL;
    for (size_t i = 0; i < plans->count; i++) {
        const struct tt_cudnn_entry *entry = &plans->entries[i];
        if (memcmp(&entry->shape, shape, sizeof *shape) == 0) {
            best = entry;
            break;
        }
        if (entry->plan == NULL || !covers(&entry->shape, shape)) continue;
        if (best == NULL || entry->shape.tokens < best->shape.tokens) best = entry;
    }
    if (best == NULL) best = add(plans, shape);
    if (best == NULL || best->plan == NULL) {
        snprintf(why, why_bytes, "%s", best != NULL ? best->why : "no memory");
        return NULL;
    }
    *made_sequences = best->shape.sequences;
    return best->plan;
}

void tt_cudnn_plans_deinit(struct tt_cudnn_plans *plans)
{
    for (size_t i = 0; i < plans->count; i++) {
        if (plans->entries[i].plan != NULL) tt_cudnn_plan_deinit(plans->entries[i].plan);
        tt_free(plans->entries[i].plan);
    }
    tt_free(plans->entries);
    plans->entries = NULL;
    plans->count = plans->capacity = 0;
}
