#include "infer/detect_evaluator.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/host_values.h"
#include "detect/results.h"
#include "engine/feed_images.h"
#include "engine/rank_images.h"
#include "engine/rank_pass.h"
#include "infer/detector.h"
#include "model/retinanet.h"

/* The sums of precision follow those of the losses (objective/detection.c). */
enum { MAP_SUM = 3, FIGURES = (int)(sizeof(struct tt_detect_figures) / sizeof(double)) };

_Static_assert(MAP_SUM + FIGURES <= (int)TT_SUM_COUNT, "there are sums for all figures");

struct evaluation {
    const struct tt_detect_evaluator_config *config;
    const struct tt_detect_dataset *dataset;
    struct tt_detections_config limits;
    struct tt_detection_list *lists; /* [list_count], of the images of a batch */
    int64_t list_count;
    struct tt_map_detection *found; /* of this rank's images */
    size_t found_count, found_capacity;
    char *host; /* the heads' outputs, where the device's memory is not the host's */
    size_t host_bytes;
};

/* Labels that the annotations lack are of no class there. */
static tt_status keep_found(struct evaluation *evaluation, int64_t image_id, struct tt_detection_list *list)
{
    int64_t kept = 0, classes = tt_detect_dataset_class_count(evaluation->dataset);
    for (int64_t i = 0; i < list->count; i++)
        if (list->items[i].label < classes) list->items[kept++] = list->items[i];
    list->count = kept;
    while (evaluation->found_capacity < evaluation->found_count + (size_t)kept)
        TT_TRY(tt_grow(&evaluation->found, evaluation->found_capacity, &evaluation->found_capacity));
    tt_map_detections_of(image_id, list, evaluation->found + evaluation->found_count);
    evaluation->found_count += (size_t)kept;
    return TT_OK;
}

/* Bytes of a tensor with the gaps of its rows. */
static size_t bytes_of(tt_tensor x)
{
    return (size_t)(x.dims[0] * x.strides[0]) * tt_dtype_bytes(x.dtype);
}

static tt_status copy_to_host(struct tt_rank *rank, tt_tensor *x, char **next)
{
    size_t bytes = bytes_of(*x);
    TT_TRY(tt_copy_to_host(rank->stream, *next, x->data, bytes));
    x->data = *next;
    *next += bytes;
    return TT_OK;
}

/* The heads' outputs where the host can read them; they are valid until the next batch. */
static tt_status fetch_outputs(struct evaluation *evaluation, struct tt_rank *rank,
                               struct tt_pass_results *results)
{
    size_t bytes = 0;
    if (tt_device_is_host(rank->device)) return tt_stream_synchronize(rank->stream);
    for (int i = 0; i < results->count; i++) bytes += bytes_of(results->slots[i].value);
    if (bytes > evaluation->host_bytes) {
        char *grown = tt_realloc(evaluation->host, bytes, 1);
        if (grown == NULL) return TT_ERR_MEMORY;
        evaluation->host = grown;
        evaluation->host_bytes = bytes;
    }
    char *next = evaluation->host;
    for (int i = 0; i < results->count; i++) TT_TRY(copy_to_host(rank, &results->slots[i].value, &next));
    return tt_stream_synchronize(rank->stream);
}

static tt_status run_micro(struct evaluation *evaluation, struct tt_rank *rank,
                           const struct tt_detect_batch *batch)
{
    tt_status status = TT_OK;
    struct tt_pass pass;
    double weight = 1.0 / (double)tt_detect_dataset_count(evaluation->dataset);
    const struct tt_micro micro = {.parts = {tt_images_part(batch, weight)}, .part_count = 1};
    TT_GO(tt_rank_upload_micro(rank, &micro, &pass));
    pass.in.want_logits = true;
    TT_GO(tt_rank_prepare(rank, &pass));
    TT_GO(tt_executor_forward(rank->executor, &pass));
    if (batch->image_count == 0) goto out;
    TT_GO(fetch_outputs(evaluation, rank, pass.out));
    TT_GO(tt_detector_decode(batch, pass.out, &evaluation->limits, evaluation->lists));
    for (int64_t n = 0; n < batch->image_count; n++)
        TT_GO(keep_found(evaluation, batch->images[n].id, &evaluation->lists[n]));
out:
    if (status == TT_ERR_CANCELLED) tt_rank_abandon(rank);
    tt_executor_end(rank->executor);
    return status;
}

/* All detections, in order of the ranks, on every rank: each sends as many as the one that has most. */
static tt_status gather(const struct evaluation *evaluation, struct tt_comm *comm,
                        struct tt_map_detection **all, int64_t *count)
{
    size_t ranks = (size_t)tt_comm_world_size(comm), most = 0, used = 0;
    size_t mine = evaluation->found_count, *counts = tt_calloc(ranks, sizeof *counts);
    struct tt_map_detection *own = NULL;
    tt_status status = TT_OK;
    *all = NULL;
    TT_GO(tt_comm_agree(comm, counts != NULL ? TT_OK : TT_ERR_MEMORY));
    TT_GO(tt_comm_host_all_gather(comm, &mine, counts, sizeof mine));
    for (size_t r = 0; r < ranks; r++) most = counts[r] > most ? counts[r] : most;
    own = tt_calloc(most + 1, sizeof *own);
    *all = tt_calloc((most + 1) * ranks, sizeof **all);
    TT_GO(tt_comm_agree(comm, own != NULL && *all != NULL ? TT_OK : TT_ERR_MEMORY));
    if (mine > 0) memcpy(own, evaluation->found, mine * sizeof *own);
    if (most > 0) TT_GO(tt_comm_host_all_gather(comm, own, *all, most * sizeof *own));
    for (size_t r = 0; r < ranks; r++) {
        memmove(*all + used, *all + r * most, counts[r] * sizeof **all);
        used += counts[r];
    }
    *count = (int64_t)used;
out:
    tt_free(own);
    tt_free(counts);
    return status;
}

/* Rank 0 counts, and every rank has the figures. */
static tt_status measure(const struct evaluation *evaluation, struct tt_rank *rank, double *figures)
{
    struct tt_map_detection *all = NULL;
    struct tt_detect_figures map = {0};
    int64_t count = 0;
    tt_status status = gather(evaluation, rank->mesh.axes[TT_AXIS_DATA].comm, &all, &count);
    if (status == TT_OK) {
        if (tt_comm_rank(rank->world) == 0) status = tt_detect_measure(evaluation->dataset, all, count, &map);
        status = tt_comm_agree(rank->world, status);
    }
    if (status == TT_OK) status = tt_comm_host_share(rank->world, &map, sizeof map);
    if (status == TT_OK && tt_comm_rank(rank->world) == 0 && evaluation->config->show != NULL)
        evaluation->config->show(evaluation->config->context, all, count);
    memcpy(figures, &map, sizeof map);
    tt_free(all);
    return status;
}

static tt_status run_steps(struct evaluation *evaluation, struct tt_rank *rank, struct tt_feed *feed,
                           const struct tt_cancel *cancel, bool *stopped, struct tt_evaluation *result)
{
    for (int64_t s = 0; s < result->steps; s++) {
        struct tt_step_facts facts;
        struct tt_micro data;
        TT_TRY(tt_evaluation_poll(rank, cancel, s, result->steps, stopped));
        if (stopped != NULL && *stopped) return TT_OK;
        TT_TRY(tt_feed_step(feed, s, &facts));
        result->samples += facts.samples;
        for (int64_t micro = 0; micro < facts.micro_count; micro++) {
            TT_TRY(tt_feed_micro(feed, s, micro, &data));
            TT_TRY(run_micro(evaluation, rank, data.parts[0].batch));
        }
    }
    return TT_OK;
}

static tt_status evaluate(struct evaluation *evaluation, struct tt_rank *rank, struct tt_feed *feed,
                          const struct tt_cancel *cancel, bool *stopped, struct tt_evaluation *result)
{
    double sums[TT_SUM_COUNT];
    TT_TRY(tt_rank_clear_sums(rank));
    TT_TRY(run_steps(evaluation, rank, feed, cancel, stopped, result));
    if (stopped != NULL && *stopped) return TT_OK;
    TT_TRY(tt_rank_read_sums(rank, sums));
    TT_TRY(tt_comm_host_sum(rank->mesh.axes[TT_AXIS_DATA].comm, sums, TT_SUM_COUNT));
    TT_TRY(measure(evaluation, rank, sums + MAP_SUM));
    result->supervised_tokens = result->samples;
    struct tt_objective_counts counts = {.tokens = result->samples};
    tt_objective_metrics(&rank->objective, sums, &counts, NAN, result->metrics);
    result->loss = result->metrics[TT_METRIC_LOSS];
    return TT_OK;
}

tt_status tt_detect_evaluate(struct tt_rank *rank, const struct tt_detect_evaluator_config *config,
                             const struct tt_cancel *cancel, bool *stopped, struct tt_evaluation *result)
{
    const struct tt_retinanet_config *network = (const void *)rank->model->facts.own;
    const struct tt_detect_loader_config *loading = config->loading;
    int64_t images = tt_detect_dataset_count(loading->dataset),
            step = loading->order.batch_size * loading->order.world_size * loading->order.accumulation;
    struct evaluation evaluation = {.config = config,
                                    .dataset = loading->dataset,
                                    .limits = tt_detections_default(network->class_count),
                                    .list_count = loading->order.batch_size};
    struct tt_feed feed = {0};
    tt_status status = TT_OK;
    double start = tt_clock_seconds();
    *result = (struct tt_evaluation){.steps = (images + step - 1) / step};
    evaluation.limits.score_threshold = (float)config->score_threshold;
    evaluation.lists = tt_calloc((size_t)evaluation.list_count, sizeof *evaluation.lists);
    if (evaluation.lists == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_feed_of_images(loading, &feed));
    TT_GO(evaluate(&evaluation, rank, &feed, cancel, stopped, result));
    result->seconds = tt_clock_seconds() - start;
out:
    if (status != TT_OK) tt_while("evaluating");
    tt_feed_deinit(&feed);
    for (int64_t i = 0; evaluation.lists != NULL && i < evaluation.list_count; i++)
        tt_detection_list_deinit(&evaluation.lists[i]);
    tt_free(evaluation.lists);
    tt_free(evaluation.found);
    tt_free(evaluation.host);
    return status;
}
