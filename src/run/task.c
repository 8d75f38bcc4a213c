#include "run/task.h"

#include "data/step_flow.h"
#include "job/task.h"

#define TASK(name, size, what) extern const struct tt_task_run_ops tt_task_run_##name;
#include "job/tasks.def"

const struct tt_task_run_ops *tt_task_run_at(int task)
{
    static const struct tt_task_run_ops *const tasks[TT_TASKS] = {
#define TASK(name, size, what) &tt_task_run_##name,
#include "job/tasks.def"
    };
    return tasks[task];
}

const struct tt_task_run_ops *tt_task_run_of(const struct tt_inputs *inputs)
{
    return tt_task_run_at(inputs->task);
}

void tt_task_data_deinit(struct tt_task_data *data)
{
    tt_sampler_destroy(data->sampler);
    tt_step_flow_destroy(data->stream);
    *data = (struct tt_task_data){0};
}
