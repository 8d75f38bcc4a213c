#include "run/run_data.h"

#include <math.h>
#include <string.h>

#include "engine/rank_pass.h"
#include "infer/detect_evaluator.h"

/* Indents the lines of a sample, so that they cannot be mistaken for lines of the program. */
static tt_status report_sample(const struct tt_run *run, const struct tt_str *sample)
{
    struct tt_str text = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < sample->bytes && status == TT_OK; i++) {
        bool begins = i == 0 || sample->data[i - 1] == '\n';
        if (begins) status = tt_str_append_text(&text, "  ");
        if (status == TT_OK) status = tt_str_append_char(&text, sample->data[i]);
    }
    if (status == TT_OK) tt_run_report_span(run, (struct tt_span){tt_str_text(&text), text.bytes});
    tt_str_deinit(&text);
    return status;
}

/* Settings with numbers of steps have no upper bound. */
int64_t tt_run_to_steps(double steps)
{
    return steps < 9e18 ? (int64_t)steps : INT64_MAX;
}

static void count_steps(struct tt_run *run)
{
    const struct tt_run_spec *spec = run->spec;
    run->total_steps = spec->max_steps > 0
                           ? spec->max_steps
                           : tt_run_to_steps(ceil(spec->num_train_epochs * (double)run->steps_per_epoch));
}

static uint64_t data_seed(const struct tt_run_spec *spec)
{
    return (uint64_t)(spec->data_seed >= 0 ? spec->data_seed : spec->seed);
}

static tt_status create_samplers(struct tt_run *run, int data_size)
{
    const struct tt_run_spec *spec = run->spec;
    const struct tt_data_config *data = run->data;
    struct tt_sampler_config train = {
        .micro_batch_size = spec->per_device_train_batch_size,
        .world_size = data_size,
        .accumulation = spec->gradient_accumulation_steps,
        .seed = data_seed(spec),
        .shuffle = spec->train_sampling_strategy != TT_SAMPLING_SEQUENTIAL,
        .by_length = spec->train_sampling_strategy == TT_SAMPLING_BY_LENGTH && !data->packing,
        .drop_last = spec->dataloader_drop_last,
        .packing = data->packing,
        .packing_strategy = data->packing_strategy,
        .max_length = tt_inputs_pack_length(&run->inputs, data),
        .prompt_rows = (run->objective->ops->needs & TT_NEEDS_PROMPT_ROWS) != 0,
    };
    TT_TRY(tt_sampler_create(run->inputs.train, &train, &run->train_sampler));
    run->steps_per_epoch = tt_sampler_steps_per_epoch(run->train_sampler);
    count_steps(run);
    tt_sampler_limits(run->train_sampler, 0, run->total_steps, &run->train_limits);
    if (run->inputs.eval == NULL) return TT_OK;
    struct tt_sampler_config eval = train;
    eval.micro_batch_size = spec->per_device_eval_batch_size;
    eval.accumulation = 1;
    eval.shuffle = eval.drop_last = false;
    eval.packing = tt_data_packs_eval(data);
    TT_TRY(tt_sampler_create(run->inputs.eval, &eval, &run->eval_sampler));
    tt_sampler_limits(run->eval_sampler, 0, tt_sampler_steps_per_epoch(run->eval_sampler), &run->eval_limits);
    return TT_OK;
}

struct tt_batch_limits tt_run_image_limits(const struct tt_detect_dataset *dataset,
                                           const struct tt_detect_order_config *order)
{
    struct tt_detect_limits limits;
    tt_detect_order_limits(dataset, order, &limits);
    return (struct tt_batch_limits){
        .images = limits.images, .boxes = limits.boxes, .height = limits.height, .width = limits.width};
}

static tt_status order_images(struct tt_run *run, int data_size)
{
    const struct tt_run_spec *spec = run->spec;
    const struct tt_detect_inputs *inputs = &run->inputs.detect;
    struct tt_detect_order *order = NULL;
    run->train_order = tt_detect_inputs_order(inputs->spec, true, spec->per_device_train_batch_size,
                                              data_size, spec->gradient_accumulation_steps, data_seed(spec));
    run->eval_order = tt_detect_inputs_order(inputs->spec, false, spec->per_device_eval_batch_size, data_size,
                                             1, data_seed(spec));
    TT_TRY(tt_detect_order_create(inputs->train, &run->train_order, 0, &order));
    run->steps_per_epoch = tt_detect_order_steps(order);
    tt_detect_order_destroy(order);
    count_steps(run);
    run->train_limits = tt_run_image_limits(inputs->train, &run->train_order);
    if (inputs->eval != NULL) run->eval_limits = tt_run_image_limits(inputs->eval, &run->eval_order);
    return TT_OK;
}

static bool has_images(const struct tt_run *run)
{
    return run->inputs.detect.spec != NULL;
}

tt_status tt_run_data_prepare(struct tt_run *run, int data_size)
{
    return has_images(run) ? order_images(run, data_size) : create_samplers(run, data_size);
}

void tt_run_data_close(struct tt_run *run)
{
    tt_sampler_destroy(run->train_sampler);
    tt_sampler_destroy(run->eval_sampler);
    run->train_sampler = run->eval_sampler = NULL;
}

bool tt_run_evaluates(const struct tt_run *run)
{
    return run->eval_sampler != NULL || run->inputs.detect.eval != NULL;
}

double tt_run_train_samples(const struct tt_run *run)
{
    return has_images(run)
               ? (double)tt_detect_dataset_count(run->inputs.detect.train)
               : (double)tt_objective_samples(run->objective, (int64_t)tt_dataset_count(run->inputs.train));
}

/* ---- Reports ---- */

static tt_status report_rows(const struct tt_run *run)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    TT_GO(tt_inputs_describe_data(run->inputs.train, "training data", &text));
    tt_run_report(run, tt_str_text(&text));
    tt_str_clear(&text);
    if (run->inputs.eval != NULL) {
        TT_GO(tt_inputs_describe_data(run->inputs.eval, "evaluation data", &text));
        tt_run_report(run, tt_str_text(&text));
        tt_str_clear(&text);
    }
    if (run->inputs.tokenizer != NULL && run->watch->log_sample) {
        tt_run_report(run, "first sample; the text between [[ and ]] is supervised:");
        TT_GO(tt_dataset_show(run->inputs.train, 0, run->inputs.tokenizer, "[[", "]]", &text));
        TT_GO(report_sample(run, &text));
    }
out:
    tt_str_deinit(&text);
    return status;
}

static tt_status report_images(const struct tt_run *run)
{
    const struct tt_detect_inputs *inputs = &run->inputs.detect;
    struct tt_str text = {0};
    tt_status status = TT_OK;
    TT_GO(tt_detect_inputs_describe_weights(inputs, &text));
    tt_run_report_line(run, tt_str_text(&text));
    tt_str_clear(&text);
    TT_GO(tt_detect_inputs_describe(inputs->train, "training data", &text));
    tt_run_report_line(run, tt_str_text(&text));
    tt_str_clear(&text);
    if (inputs->eval == NULL) goto out;
    TT_GO(tt_detect_inputs_describe(inputs->eval, "evaluation data", &text));
    tt_run_report_line(run, tt_str_text(&text));
out:
    tt_str_deinit(&text);
    return status;
}

tt_status tt_run_data_report(const struct tt_run *run)
{
    return has_images(run) ? report_images(run) : report_rows(run);
}

/* ---- Of one rank ---- */

struct tt_detect_loader_config tt_run_loading(const struct tt_detect_inputs *inputs,
                                              const struct tt_detect_order_config *order,
                                              struct tt_rank *rank)
{
    bool host = tt_device_is_host(rank->device);
    const struct tt_detect_spec *spec = inputs->spec;
    return (struct tt_detect_loader_config){
        .dataset = order->train ? inputs->train : inputs->eval,
        .order = *order,
        .rank = rank->mesh.data_rank,
        .workers = spec->num_workers > 1 ? (int)spec->num_workers : 1,
        .ahead = 1,
        .pixel_dtype = rank->model->options.compute_dtype,
        .max_pixels = (int64_t)spec->max_image_pixels,
        .cache = inputs->cache,
        .allocate = host ? NULL : tt_rank_lend_pixels,
        .release = host ? NULL : tt_rank_return_pixels,
        .context = rank,
    };
}

tt_status tt_run_feed(const struct tt_run *run, struct tt_rank *rank, struct tt_feed *feed)
{
    *feed = (struct tt_feed){.sampler = run->train_sampler};
    if (!has_images(run)) return TT_OK;
    const struct tt_detect_loader_config loading =
        tt_run_loading(&run->inputs.detect, &run->train_order, rank);
    return tt_feed_of_images(&loading, feed);
}

struct shown {
    struct tt_run *run;
    int64_t step;
};

static void show(void *context, const struct tt_map_detection *found, int64_t count)
{
    const struct shown *shown = context;
    tt_shown_pictures_draw(shown->run, shown->step, found, count);
}

tt_status tt_run_evaluate(struct tt_run *run, struct tt_rank *rank, int64_t step,
                          struct tt_batch_storage *storage, struct tt_by_source *by_source, bool *stopped,
                          struct tt_evaluation *evaluation)
{
    if (!has_images(run))
        return tt_evaluate(rank, run->eval_sampler, run->cancel, stopped, storage, by_source, evaluation);
    struct shown shown = {run, step};
    const struct tt_detect_loader_config loading =
        tt_run_loading(&run->inputs.detect, &run->eval_order, rank);
    const struct tt_detect_evaluator_config config = {.loading = &loading,
                                                      .score_threshold =
                                                          run->inputs.detect.spec->score_threshold,
                                                      .show = show,
                                                      .context = &shown};
    return tt_detect_evaluate(rank, &config, run->cancel, stopped, evaluation);
}
