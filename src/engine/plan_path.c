/* The order in which a plan's blocks take leaner levels: by bytes won per second lost, of each kind of block. */
#include <math.h>

#include "base/alloc.h"
#include "engine/plan_impl.h"

/* Blocks of one kind have the same numbers at every level. */
struct kinds {
    int *of;    /* [block_count]; -1: the block has no choice */
    int *first; /* [count]: a block of the kind */
    int count;
    /* A block that is a kind of its own, the last one with a choice: it recomputes while all others still keep their
     * results, so that wins nothing. -1: none is. */
    int last;
};

/* Steps of all blocks of a kind, to one level or to several that follow each other. */
struct phase {
    int kind;
    unsigned levels;       /* to which it leads */
    double bytes, seconds; /* that one block wins and loses */
};

static enum tt_level level_of(const struct tt_plan *plan, int block, enum tt_level wanted)
{
    return tt_level_among(plan->choices[block], wanted);
}

void tt_plan_set_levels(enum tt_level wanted, struct tt_plan *plan)
{
    for (int i = 0; i < plan->block_count; i++) plan->levels[i] = level_of(plan, i, wanted);
}

void tt_plan_path_go(const struct tt_plan_path *path, int position, struct tt_plan *plan)
{
    tt_plan_set_levels(path->from, plan);
    for (int i = 0; i < position; i++) plan->levels[path->moves[i].block] = path->moves[i].to;
}

/* ---- Kinds of blocks ---- */

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * (fabs(a) + fabs(b));
}

/* Whether two blocks have the same choices and need as much at all levels that were counted. */
static bool alike(const struct tt_plan *plan, const struct tt_plan_counts *counts, int a, int b)
{
    if (plan->choices[a] != plan->choices[b]) return false;
    for (int level = 0; level < TT_LEVEL_COUNT; level++) {
        const struct tt_plan_work *work = counts->at[level];
        if (work == NULL) continue;
        if (work[a].kept != work[b].kept || !near(work[a].forward, work[b].forward)) return false;
    }
    return true;
}

static int last_choice(const struct tt_plan *plan)
{
    int last = plan->block_count - 1;
    while (last >= 0 && !tt_plan_chooses(plan, last)) last--;
    return last;
}

static void find_kinds(const struct tt_plan *plan, const struct tt_plan_counts *counts, struct kinds *kinds)
{
    kinds->count = 0;
    for (int i = 0; i < plan->block_count; i++) {
        int kind = 0;
        kinds->of[i] = -1;
        if (!tt_plan_chooses(plan, i)) continue;
        while (kind < kinds->count && (i == kinds->last || !alike(plan, counts, kinds->first[kind], i)))
            kind++;
        if (kind == kinds->count) kinds->first[kinds->count++] = i;
        kinds->of[i] = kind;
    }
}

/* ---- Phases ---- */

static double rate_of(const struct phase *phase)
{
    return phase->bytes / (phase->seconds > 1e-12 ? phase->seconds : 1e-12);
}

/* Bytes and seconds of a kind's blocks between two levels; 0 where these were not counted. */
static struct phase step_between(const struct tt_plan_counts *counts, const struct kinds *kinds, int kind,
                                 enum tt_level from, enum tt_level to)
{
    struct phase step = {.kind = kind, .levels = TT_LEVEL_BIT(to)};
    int block = kinds->first[kind];
    const struct tt_plan_work *before = counts->at[from], *after = counts->at[to];
    if (before == NULL || after == NULL || (block == kinds->last && to >= TT_RECOMPUTE_BLOCK)) return step;
    step.bytes = (double)before[block].kept - (double)after[block].kept;
    step.seconds = after[block].seconds - before[block].seconds;
    return step;
}

/* The phases of one kind, appended to `phases`: each wins less for a second than the one before. A step that would win
 * more becomes one with the steps before it. */
static int add_phases(const struct tt_plan *plan, const struct tt_plan_counts *counts,
                      const struct tt_plan_path *path, const struct kinds *kinds, int kind,
                      struct phase *phases)
{
    int count = 0, block = kinds->first[kind];
    enum tt_level now = level_of(plan, block, path->from);
    for (int to = (int)now + 1; to <= (int)path->most && to < TT_RECOMPUTE_OFFLOAD; to++) {
        if ((plan->choices[block] & TT_LEVEL_BIT(to)) == 0) continue;
        struct phase step = step_between(counts, kinds, kind, now, (enum tt_level)to);
        for (; count > 0 && rate_of(&step) > rate_of(&phases[count - 1]); count--) {
            step.levels |= phases[count - 1].levels;
            step.bytes += phases[count - 1].bytes;
            step.seconds += phases[count - 1].seconds;
        }
        phases[count++] = step;
        now = (enum tt_level)to;
    }
    return count;
}

/* The most bytes for a second first; kinds keep their order where they win alike. */
static void sort_phases(struct phase *phases, int count)
{
    for (int i = 1; i < count; i++) {
        struct phase phase = phases[i];
        int at = i;
        for (; at > 0 && rate_of(&phase) > rate_of(&phases[at - 1]); at--) phases[at] = phases[at - 1];
        phases[at] = phase;
    }
}

/* ---- Moves ---- */

/* The blocks of a kind, or all of -1, go to `to` in their order. */
static void add_moves(const struct tt_plan *plan, const struct kinds *kinds, int kind, enum tt_level to,
                      struct tt_plan_path *path)
{
    for (int i = 0; i < plan->block_count; i++) {
        bool goes = kinds->of[i] >= 0 && (kind < 0 || kinds->of[i] == kind);
        bool higher = to > level_of(plan, i, path->from) && (plan->choices[i] & TT_LEVEL_BIT(to)) != 0;
        if (goes && higher) path->moves[path->count++] = (struct tt_plan_move){.block = i, .to = to};
    }
}

static void fill(const struct tt_plan *plan, const struct tt_plan_counts *counts, const struct kinds *kinds,
                 struct phase *phases, struct tt_plan_path *path)
{
    int count = 0;
    for (int kind = 0; kind < kinds->count; kind++)
        count += add_phases(plan, counts, path, kinds, kind, phases + count);
    sort_phases(phases, count);
    for (int p = 0; p < count; p++)
        for (int to = 0; to < TT_RECOMPUTE_OFFLOAD; to++)
            if ((phases[p].levels & TT_LEVEL_BIT(to)) != 0)
                add_moves(plan, kinds, phases[p].kind, (enum tt_level)to, path);
    path->recomputing = path->count;
    if (path->most == TT_RECOMPUTE_OFFLOAD) add_moves(plan, kinds, -1, TT_RECOMPUTE_OFFLOAD, path);
}

tt_status tt_plan_count_level(const struct tt_plan_attempt *attempt, enum tt_level level,
                              struct tt_plan *plan, struct tt_plan_counts *counts)
{
    struct tt_plan_attempt counting = *attempt;
    counting.work = counts->at[level] = tt_calloc((size_t)plan->block_count, sizeof *counting.work);
    if (counting.work == NULL) return TT_ERR_MEMORY;
    tt_plan_set_levels(level, plan);
    return tt_plan_run(&counting, plan);
}

/* Counts the levels behind the first; the way goes no further than to recomputation. */
static tt_status count_levels(const struct tt_plan_attempt *attempt, struct tt_plan *plan,
                              const struct tt_plan_path *path, struct tt_plan_counts *counts)
{
    for (int level = (int)path->from + 1; level <= (int)path->most && level < TT_RECOMPUTE_OFFLOAD; level++)
        TT_TRY(tt_plan_count_level(attempt, (enum tt_level)level, plan, counts));
    return TT_OK;
}

tt_status tt_plan_path_make(const struct tt_plan_attempt *attempt, struct tt_plan *plan,
                            struct tt_plan_counts *counts, struct tt_plan_path *path)
{
    tt_status status = TT_OK;
    size_t blocks = (size_t)plan->block_count;
    struct kinds kinds = {.of = tt_calloc(2 * blocks, sizeof *kinds.of), .last = -1};
    struct phase *phases = tt_calloc(blocks * TT_LEVEL_COUNT, sizeof *phases);
    path->moves = tt_calloc(blocks * TT_LEVEL_COUNT, sizeof *path->moves);
    if (kinds.of == NULL || phases == NULL || path->moves == NULL) TT_GO(TT_ERR_MEMORY);
    kinds.first = kinds.of + blocks;
    find_kinds(plan, counts, &kinds);
    if (kinds.count > 1) { /* else there is one order */
        TT_GO(count_levels(attempt, plan, path, counts));
        kinds.last = last_choice(plan);
        find_kinds(plan, counts, &kinds);
    }
    fill(plan, counts, &kinds, phases, path);
out:
    tt_free(kinds.of);
    tt_free(phases);
    return status;
}

void tt_plan_path_deinit(struct tt_plan_path *path)
{
    tt_free(path->moves);
    *path = (struct tt_plan_path){0};
}

void tt_plan_counts_deinit(struct tt_plan_counts *counts)
{
    for (int level = 0; level < TT_LEVEL_COUNT; level++) tt_free(counts->at[level]);
    *counts = (struct tt_plan_counts){0};
}
