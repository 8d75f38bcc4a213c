#include "backend/cuda/cudnn_plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

enum {
    SEQUENCES_MIN = 32,
    TOKENS_MIN = 1024,
    TOKENS_STEP = 32768,
    TOKENS_SLACK = 4, /* a plan serves batches with at least a quarter of its tokens, half of its sequences */
    SEQUENCES_SLACK = 2,
    FILE_BYTES_MAX = 16 << 20,
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

/* 64-bit FNV-1a. */
static uint64_t hash(const char *data, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ (unsigned char)data[i]) * 0x100000001b3u;
    return h;
}

/* The folder of stored plans as owned text, NULL when there is none. */
static char *cache_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base != NULL && base[0] == '/') return tt_path_join(base, "trimtab");
    if (home == NULL || home[0] != '/') return NULL;
    return tt_path_join(home, ".cache/trimtab");
}

/* The path of a plan's file as owned text, NULL when there is no folder. */
static char *cache_path(const char *name, bool create)
{
    char file[64], *folder = cache_folder(), *path = NULL;
    if (folder == NULL) return NULL;
    snprintf(file, sizeof file, "attention-%016llx.plan", (unsigned long long)hash(name, strlen(name)));
    if (!create || tt_dir_create(folder) == TT_OK) path = tt_path_join(folder, file);
    tt_free(folder);
    return path;
}

/* A file has two lines, the plan's name and the hash of the rest, and then the plan's JSON. A file that cannot
 * be read or does not match is not an error: the plan is made again. */
static bool load(const struct tt_cudnn_plans *plans, const char *name, struct tt_cudnn_plan *plan)
{
    struct tt_str text = {0};
    char *path = cache_path(name, false);
    bool loaded = false;
    if (path == NULL || !tt_path_exists(path) || tt_file_read(path, FILE_BYTES_MAX, &text) != TT_OK) goto out;
    size_t name_bytes = strlen(name), head = name_bytes + 1 + 16 + 1;
    if (text.bytes <= head || memcmp(text.data, name, name_bytes) != 0 || text.data[name_bytes] != '\n')
        goto out;
    const char *json = text.data + head;
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)hash(json, text.bytes - head));
    if (memcmp(text.data + name_bytes + 1, digits, 16) != 0) goto out;
    loaded = tt_cudnn_plan_read(plans->cudnn, json, text.bytes - head, plan) == TT_OK;
out:
    tt_free(path);
    tt_str_deinit(&text);
    tt_error_clear();
    return loaded;
}

static void store(const char *name, const struct tt_cudnn_plan *plan)
{
    char *json = NULL, *path = cache_path(name, true);
    size_t bytes = 0;
    struct tt_str text = {0};
    if (path == NULL || tt_cudnn_plan_write(plan, &json, &bytes) != TT_OK) goto out;
    if (tt_str_printf(&text, "%s\n%016llx\n", name, (unsigned long long)hash(json, bytes)) != TT_OK) goto out;
    if (tt_str_append(&text, json, bytes) != TT_OK) goto out;
    if (tt_file_write_atomic(path, text.data, text.bytes) != TT_OK) {
        tt_debug("attention: cannot store a plan in '%s'", path);
    }
out:
    tt_error_clear();
    tt_free(json);
    tt_free(path);
    tt_str_deinit(&text);
}

static tt_status obtain(const struct tt_cudnn_plans *plans, const struct tt_cudnn_shape *shape,
                        struct tt_cudnn_plan *plan)
{
    char name[NAME_BYTES];
    name_plan(plans, shape, name);
    double start = tt_clock_seconds();
    bool stored = load(plans, name, plan);
    if (stored && plan->workspace_bytes > plans->workspace_limit) {
        tt_cudnn_plan_deinit(plan);
        stored = false;
    }
    if (!stored) {
        struct tt_cudnn_graph graph;
        tt_cudnn_graph_init(&graph, plans->cudnn);
        tt_cudnn_attention_graph(&graph, shape);
        tt_status status = tt_cudnn_plan_build(&graph, plans->workspace_limit, plan);
        tt_cudnn_graph_deinit(&graph);
        TT_TRY(status);
        store(name, plan);
    }
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
    void *entries = plans->entries;
    struct tt_cudnn_plan *plan = tt_calloc(1, sizeof *plan);
    if (plan == NULL) return NULL;
    if (tt_grow(&entries, plans->count, &plans->capacity, sizeof *plans->entries) != 0) {
        tt_free(plan);
        return NULL;
    }
    plans->entries = entries;
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
