#include "run/data_order.h"

#include <math.h>

int64_t tt_run_to_steps(double steps)
{
    return steps < 9e18 ? (int64_t)steps : INT64_MAX;
}

static int64_t count_steps(const struct tt_run_spec *spec, int64_t steps_per_epoch)
{
    if (spec->max_steps > 0) return spec->max_steps;
    return tt_run_to_steps(ceil(spec->num_train_epochs * (double)steps_per_epoch));
}

tt_status tt_run_order_data(struct tt_run *run, int data_size)
{
    const struct tt_run_spec *spec = run->spec;
    const struct tt_task_run_ops *task = tt_task_run_of(&run->inputs);
    const struct tt_task_order train = {
        .train = true,
        .data_size = data_size,
        .batch_size = spec->per_device_train_batch_size,
        .accumulation = spec->gradient_accumulation_steps,
        .seed = (uint64_t)(spec->data_seed >= 0 ? spec->data_seed : spec->seed),
        .run = spec,
        .rows = run->data,
        .prompt_rows = (run->objective->ops->needs & TT_NEEDS_PROMPT_ROWS) != 0,
    };
    TT_TRY(task->order(&run->inputs, &train, &run->train_data));
    TT_TRY(task->epoch_steps(&run->inputs, &run->train_data, &run->steps_per_epoch));
    run->total_steps = count_steps(spec, run->steps_per_epoch);
    run->train_limits = task->limits(&run->inputs, &run->train_data, run->total_steps);
    if (!task->evaluates(&run->inputs)) return TT_OK;
    struct tt_task_order eval = train;
    eval.train = false;
    eval.batch_size = spec->per_device_eval_batch_size;
    eval.accumulation = 1;
    TT_TRY(task->order(&run->inputs, &eval, &run->eval_data));
    run->eval_limits = task->limits(&run->inputs, &run->eval_data, 0);
    return TT_OK;
}

void tt_run_close_data(struct tt_run *run)
{
    tt_task_data_deinit(&run->train_data);
    tt_task_data_deinit(&run->eval_data);
}
