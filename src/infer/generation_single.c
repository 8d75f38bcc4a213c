#include "infer/generation_single.h"

#include "backend/profile.h"
#include "base/alloc.h"
#include "base/log.h"

enum { GRAPHS_MAX = 64 };

/* The passes of one graph. */
struct kind {
    int64_t rows, reach;
    struct tt_generation_adapters adapters; /* without those of rows */
    bool ran;                               /* once without a graph: algorithms are chosen */
    struct tt_graph *graph;
};

struct tt_generation_single {
    int64_t slots;
    bool records;
    int64_t launches;
    struct kind kinds[GRAPHS_MAX];
    int kind_count;
    /* Host arrays of the padded batch, [slots]. */
    int32_t *sequences, *ids, *positions, *reached, *rows, *labels, *borders, *adapters;
    int64_t *row_keys;
    struct tt_sample_rule *rules;
};

tt_status tt_generation_single_create(const struct tt_rank *rank, int64_t slots,
                                      struct tt_generation_single **out)
{
    size_t count = (size_t)slots;
    struct tt_generation_single *single = tt_calloc(1, sizeof *single);
    if (single == NULL) return TT_ERR_MEMORY;
    *single = (struct tt_generation_single){
        .slots = slots,
        .records = tt_device_has_graphs(rank->device) && tt_rank_is_at_hand(rank),
        .sequences = tt_calloc(count, sizeof(int32_t)),
        .ids = tt_calloc(count, sizeof(int32_t)),
        .positions = tt_calloc(count, sizeof(int32_t)),
        .reached = tt_calloc(count, sizeof(int32_t)),
        .rows = tt_calloc(count, sizeof(int32_t)),
        .labels = tt_calloc(count, sizeof(int32_t)),
        .borders = tt_calloc(count + 1, sizeof(int32_t)),
        .adapters = tt_calloc(count, sizeof(int32_t)),
        .row_keys = tt_calloc(count, sizeof(int64_t)),
        .rules = tt_calloc(count, sizeof(struct tt_sample_rule)),
    };
    if (single->sequences == NULL || single->ids == NULL || single->positions == NULL ||
        single->reached == NULL || single->rows == NULL || single->labels == NULL ||
        single->borders == NULL || single->adapters == NULL || single->row_keys == NULL ||
        single->rules == NULL) {
        tt_generation_single_destroy(single);
        return TT_ERR_MEMORY;
    }
    *out = single;
    return TT_OK;
}

static void drop_graphs(struct tt_generation_single *single)
{
    for (int i = 0; i < single->kind_count; i++) tt_graph_destroy(single->kinds[i].graph);
    single->kind_count = 0;
}

void tt_generation_single_destroy(struct tt_generation_single *single)
{
    if (single == NULL) return;
    drop_graphs(single);
    tt_free(single->sequences);
    tt_free(single->ids);
    tt_free(single->positions);
    tt_free(single->reached);
    tt_free(single->rows);
    tt_free(single->labels);
    tt_free(single->borders);
    tt_free(single->adapters);
    tt_free(single->row_keys);
    tt_free(single->rules);
    tt_free(single);
}

bool tt_generation_single_records(const struct tt_generation_single *single)
{
    return single != NULL && single->records;
}

int64_t tt_generation_single_launches(const struct tt_generation_single *single)
{
    return single != NULL ? single->launches : 0;
}

bool tt_generation_is_single(const struct tt_batch *batch)
{
    return batch->token_count > 0 && batch->max_length == 1 && batch->row_count == batch->token_count;
}

/* 1, 2, 4, 8, then steps of 8 up to 32, of 16 up to 64, of 32 up to 256, of 64. */
static int64_t round_rows(int64_t rows)
{
    int64_t step = rows <= 32 ? 8 : rows <= 64 ? 16 : rows <= 256 ? 32 : 64, power = 1;
    while (power < rows && power < 8) power *= 2;
    return rows <= 8 ? power : (rows + step - 1) / step * step;
}

/* Copies the batch with rows of token 0 behind it. */
static struct tt_batch pad(struct tt_generation_single *single, const struct tt_batch *batch,
                           const struct tt_sample_rule *rules)
{
    int64_t count = batch->token_count, rows = single->records ? round_rows(count) : count, next = 0;
    if (rows > single->slots) rows = single->slots;
    for (int64_t b = 0; b < batch->sequence_count && batch->cu_seqlens != NULL; b++)
        if (batch->cu_seqlens[b + 1] > batch->cu_seqlens[b]) single->sequences[next++] = (int32_t)b;
    for (int64_t t = 0; t < rows; t++) {
        bool is = t < count && batch->ids != NULL;
        single->ids[t] = is ? batch->ids[t] : 0;
        single->positions[t] = is ? batch->positions[t] : 0;
        single->reached[t] = is ? batch->reached[t] : 0;
        single->rows[t] = (int32_t)t;
        single->rules[t] = is && rules != NULL ? rules[t] : (struct tt_sample_rule){.seen_row = -1};
    }
    return (struct tt_batch){
        .token_count = rows,
        .sequence_count = batch->sequence_count,
        .max_length = 1,
        .ids = single->ids,
        .positions = single->positions,
        .reached = single->reached,
        .row_keys = single->row_keys,
        .cu_seqlens = single->borders,
        .row_count = rows,
        .rows = single->rows,
        .labels = single->labels,
    };
}

/* The adapters of the padded batch, whose further rows have none. Where work is recorded, as many of mixed ones as a
 * few pieces of work have. */
static struct tt_generation_adapters pad_adapters(struct tt_generation_single *single,
                                                  const struct tt_generation_adapters *adapters,
                                                  int64_t places, int64_t count, int64_t rows)
{
    struct tt_generation_adapters padded = *adapters;
    int64_t end = adapters->first + adapters->count, wide = 1;
    padded.of_tokens = padded.of_rows = NULL;
    if (adapters->mixed && single->records) {
        while (wide < end) wide *= 2;
        padded.first = 0;
        padded.count = wide < places ? wide : places;
    }
    if (adapters->of_tokens == NULL) return padded;
    for (int64_t t = 0; t < rows; t++) single->adapters[t] = t < count ? adapters->of_tokens[t] : -1;
    padded.of_tokens = padded.of_rows = single->adapters;
    return padded;
}

static bool same_adapters(const struct tt_generation_adapters *a, const struct tt_generation_adapters *b)
{
    return a->off == b->off && a->mixed == b->mixed && a->first == b->first && a->count == b->count;
}

static struct kind *find_kind(struct tt_generation_single *single, int64_t rows, int64_t reach,
                              const struct tt_generation_adapters *adapters)
{
    for (int i = 0; i < single->kind_count; i++) {
        struct kind *kind = &single->kinds[i];
        if (kind->rows == rows && kind->reach == reach && same_adapters(&kind->adapters, adapters))
            return kind;
    }
    if (single->kind_count == GRAPHS_MAX) drop_graphs(single);
    struct kind *kind = &single->kinds[single->kind_count++];
    *kind = (struct kind){.rows = rows, .reach = reach, .adapters = *adapters};
    kind->adapters.of_tokens = kind->adapters.of_rows = NULL;
    return kind;
}

/* Records the work of a pass as a graph. A failure does not end the run: passes are then queued op by op. */
static void record(struct tt_generation_rank *rank, const struct tt_pass *pass, struct kind *kind)
{
    struct tt_stream *stream = rank->rank->stream;
    struct tt_graph *graph = NULL;
    tt_status status = tt_graph_begin(stream);
    if (status == TT_OK) {
        status = tt_generation_rank_queue(rank, pass);
        tt_status ended = tt_graph_end(stream, &graph);
        if (status == TT_OK) status = ended;
    }
    if (status == TT_OK) {
        kind->graph = graph;
        return;
    }
    tt_warn("generation without graphs, which is slower: %s", tt_error_last()->message);
    tt_error_clear();
    tt_graph_destroy(graph);
    tt_executor_end(rank->rank->executor);
    rank->single->records = false;
}

tt_status tt_generation_single_pass(struct tt_generation_rank *rank, const struct tt_batch *batch,
                                    const struct tt_sample_rule *rules,
                                    const struct tt_generation_adapters *adapters)
{
    struct tt_generation_single *single = rank->single;
    struct tt_stream *stream = rank->rank->stream;
    struct tt_batch padded = pad(single, batch, rules);
    int64_t places = rank->rank->model->options.adapter_places;
    struct tt_generation_adapters own =
        pad_adapters(single, adapters, places > 1 ? places : 1, batch->token_count, padded.token_count);
    struct tt_pass pass;
    TT_TRY(tt_generation_rank_lend(rank, &own, &padded, single->rules, &pass));
    TT_TRY(tt_kv_cache_begin_single(rank->cache, stream, single->sequences, batch->token_count,
                                    padded.token_count));
    /* The copies to the host differ from pass to pass. */
    bool adjusts = rank->adjust != NULL && rank->adjust->count > 0;
    /* Ops of recorded work have no spans of their own. */
    bool profiles = tt_device_profiles(rank->rank->device);
    if (!single->records || rank->wanted_count > 0 || adjusts || profiles)
        return tt_generation_rank_queue(rank, &pass);
    struct kind *kind = find_kind(single, padded.token_count, tt_kv_cache_reach(rank->cache), &own);
    if (kind->graph == NULL && kind->ran) record(rank, &pass, kind);
    kind->ran = true;
    if (kind->graph == NULL) return tt_generation_rank_queue(rank, &pass);
    if (rank->rank != &rank->own) TT_TRY(tt_rank_refresh(rank->rank)); /* it may have trained since */
    tt_stream_mark(stream, "a token of every sequence");
    single->launches++;
    return tt_graph_launch(kind->graph, stream);
}
