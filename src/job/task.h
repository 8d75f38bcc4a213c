/* The task of a job: where its inputs come from, what follows for its settings, and how large its samples can be. One
 * file each, job/task_<name>.c, listed in job/tasks.def; what a run asks of its task is in run/task.h. Nobody else asks
 * which task a job has. */
#ifndef TT_JOB_TASK_H
#define TT_JOB_TASK_H

#include "data/sampler.h"
#include "job/input_part.h"
#include "job/spec.h"

struct tt_arena;
struct tt_inputs;
struct tt_inputs_config;
struct tt_settings;

/* Places of the tasks: the values of the setting `task`. */
enum {
#define TASK(name, size, what) TT_TASK_##name,
#include "job/tasks.def"
    TT_TASKS
};

/* The size of a sample, of which a plan can search the largest that fits. */
struct tt_task_size {
    const char *setting, *follows; /* the second changes in proportion; NULL: none does */
    const char *end;               /* why a larger one is not possible */
    const char *others;            /* why there is no size of another task */
    int64_t least;
    int64_t (*most)(const struct tt_plan_spec *spec, const struct tt_model_facts *model);
    void (*set)(struct tt_plan_spec *spec, int64_t value);
    int64_t (*follower)(const struct tt_plan_spec *spec); /* NULL with `follows` */
};

struct tt_task_ops {
    const char *objective;    /* NULL: that of the settings */
    const char *planned_file; /* what a plan reads on this machine, and the setting that names another */
    /* Plans with `file`, lent, a copy of the weights file on this machine. NULL: weights say nothing to a plan. */
    tt_status (*plan_from)(struct tt_job_spec *job, const char *file);
    bool writes_text; /* its models complete prompts, and its figures count tokens */
    struct tt_task_size size;

    /* Suggests values of settings that are not given. NULL: may be. */
    tt_status (*suggest)(struct tt_settings *settings, const struct tt_job_spec *job);
    /* Checks of what does not go together: in every kind of job that has the setting `task`; in a training, an
     * evaluation, a plan. The last may be NULL. */
    tt_status (*check)(const struct tt_settings *settings, const struct tt_job_spec *job);
    tt_status (*check_train)(const struct tt_job_spec *job);
    tt_status (*check_evaluate)(const struct tt_job_spec *job);
    tt_status (*check_plan)(const struct tt_plan_spec *spec);

    /* Fills `inputs`, which is zeroed but for what the configuration says; after an error tt_inputs_close follows. */
    tt_status (*open)(const struct tt_inputs_config *config, struct tt_inputs *inputs);
    /* Closes inputs->own. NULL: there is none. */
    void (*close)(struct tt_inputs *inputs);
    /* Checks that the weights to begin with are those of the model, where inputs->source does not. NULL: it does. */
    tt_status (*check_model)(const struct tt_inputs *inputs, const struct tt_model *model);
    /* tt_inputs_visit. NULL: nothing is beside files and rows. */
    tt_status (*visit)(const struct tt_inputs *inputs, tt_input_visit *visit, void *context);

    /* The network of a plan, without weights and data. `arena` lives as long as facts and options. */
    tt_status (*network)(const struct tt_plan_spec *spec, struct tt_arena *arena,
                         struct tt_model_facts *facts, struct tt_model_options *options);
    /* The limits of its micro batches, each as large as it can be. `eval` stays empty where nothing more is needed. */
    tt_status (*limits)(const struct tt_plan_spec *spec, const struct tt_model_facts *facts,
                        struct tt_batch_limits *train, struct tt_batch_limits *eval);
    /* Every rank holds the whole network. NULL: none does. */
    bool (*is_whole)(const struct tt_model_facts *facts);
};
extern const struct tt_task_ops *const tt_tasks[TT_TASKS];

/* The name of a task, as the setting has it. */
const char *tt_task_name(int task);

#endif
