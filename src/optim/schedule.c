#include "optim/schedule.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

/* lr_scheduler_kwargs with transformers' defaults. */
struct kwargs {
    double num_cycles; /* negative: the schedule's own default */
    double lr_end, power;
    double timescale;
    double min_lr, min_lr_rate; /* negative: not given */
    int64_t num_stable_steps, num_decay_steps;
    double min_lr_ratio;
    double warmup_lr_rate; /* negative: not given */
    const char *warmup_type, *decay_type;
    /* of multistep; lists of the document, NULL: not given */
    const struct tt_json_value *milestones, *milestone_epochs;
    double gamma, warmup_factor;
};

/* The steps of a schedule; its shape is a function of these. */
struct position {
    int64_t step, warmup, total, epoch; /* epoch: steps of one */
};

static double progress(struct position at)
{
    int64_t span = at.total - at.warmup;
    return (double)(at.step - at.warmup) / (double)(span > 1 ? span : 1);
}

static double clamp_low(double value)
{
    return value > 0.0 ? value : 0.0;
}

static double cosine_wave(double cycles, double at)
{
    return 0.5 * (1.0 + cos(M_PI * cycles * 2.0 * at));
}

static double linear(const struct tt_optim_config *config, const struct kwargs *kwargs, struct position at)
{
    (void)config, (void)kwargs;
    int64_t span = at.total - at.warmup;
    return clamp_low((double)(at.total - at.step) / (double)(span > 1 ? span : 1));
}

static double cosine(const struct tt_optim_config *config, const struct kwargs *kwargs, struct position at)
{
    (void)config;
    return clamp_low(cosine_wave(kwargs->num_cycles < 0 ? 0.5 : kwargs->num_cycles, progress(at)));
}

static double cosine_with_restarts(const struct tt_optim_config *config, const struct kwargs *kwargs,
                                   struct position at)
{
    (void)config;
    double done = progress(at);
    double cycles = kwargs->num_cycles < 0 ? 1.0 : kwargs->num_cycles;
    return done >= 1.0 ? 0.0 : clamp_low(0.5 * (1.0 + cos(M_PI * fmod(cycles * done, 1.0))));
}

/* The floor as a share of the peak rate. */
static double floor_rate(const struct tt_optim_config *config, const struct kwargs *kwargs)
{
    return kwargs->min_lr >= 0 ? kwargs->min_lr / config->learning_rate : kwargs->min_lr_rate;
}

static double cosine_to_floor(const struct tt_optim_config *config, const struct kwargs *kwargs, double done)
{
    double rate = floor_rate(config, kwargs);
    double wave = cosine_wave(kwargs->num_cycles < 0 ? 0.5 : kwargs->num_cycles, done);
    return clamp_low(wave * (1.0 - rate) + rate);
}

static double cosine_with_min_lr(const struct tt_optim_config *config, const struct kwargs *kwargs,
                                 struct position at)
{
    return cosine_to_floor(config, kwargs, progress(at));
}

/* Its warm-up ends one step earlier than the others', so the wave also begins one step earlier. */
static double cosine_warmup_with_min_lr(const struct tt_optim_config *config, const struct kwargs *kwargs,
                                        struct position at)
{
    int64_t span = at.total - at.warmup;
    return cosine_to_floor(config, kwargs, (double)(at.step - at.warmup + 1) / (double)(span > 1 ? span : 1));
}

static double polynomial(const struct tt_optim_config *config, const struct kwargs *kwargs,
                         struct position at)
{
    double init = config->learning_rate;
    if (at.step > at.total) return kwargs->lr_end / init;
    double left = 1.0 - (double)(at.step - at.warmup) / (double)(at.total - at.warmup);
    return ((init - kwargs->lr_end) * pow(left, kwargs->power) + kwargs->lr_end) / init;
}

static double constant(const struct tt_optim_config *config, const struct kwargs *kwargs, struct position at)
{
    (void)config, (void)kwargs, (void)at;
    return 1.0;
}

static double inverse_sqrt(const struct tt_optim_config *config, const struct kwargs *kwargs,
                           struct position at)
{
    (void)config;
    double timescale = kwargs->timescale > 0 ? kwargs->timescale
                       : at.warmup > 0       ? (double)at.warmup
                                             : 10000.0;
    return 1.0 / sqrt(((double)at.step + timescale - (double)at.warmup) / timescale);
}

static double decay_shape(const struct kwargs *kwargs, double done)
{
    if (strcmp(kwargs->decay_type, "linear") == 0) return 1.0 - done;
    if (strcmp(kwargs->decay_type, "1-sqrt") == 0) return 1.0 - sqrt(done);
    return cosine_wave(kwargs->num_cycles < 0 ? 0.5 : kwargs->num_cycles, done);
}

static double warmup_stable_decay(const struct tt_optim_config *config, const struct kwargs *kwargs,
                                  struct position at)
{
    (void)config;
    int64_t stable = kwargs->num_stable_steps >= 0 ? kwargs->num_stable_steps
                                                   : at.total - at.warmup - kwargs->num_decay_steps;
    int64_t into_decay = at.step - at.warmup - stable;
    if (into_decay < 0) return 1.0;
    if (into_decay >= kwargs->num_decay_steps) return kwargs->min_lr_ratio;
    double shape = decay_shape(kwargs, (double)into_decay / (double)kwargs->num_decay_steps);
    return clamp_low(shape * (1.0 - kwargs->min_lr_ratio) + kwargs->min_lr_ratio);
}

/* The step of a milestone: below 1 it is a share of all steps, as warmup_steps. */
static double milestone_step(double milestone, struct position at)
{
    return milestone < 1.0 ? ceil((double)at.total * milestone) : milestone;
}

static double multistep(const struct tt_optim_config *config, const struct kwargs *kwargs, struct position at)
{
    (void)config;
    double factor = 1.0, step = (double)at.step;
    if (at.step < at.warmup)
        factor = kwargs->warmup_factor + (1.0 - kwargs->warmup_factor) * step / (double)at.warmup;
    for (size_t i = 0; i < tt_json_count(kwargs->milestones); i++)
        if (step >= milestone_step(tt_json_number(tt_json_at(kwargs->milestones, i)), at))
            factor *= kwargs->gamma;
    for (size_t i = 0; i < tt_json_count(kwargs->milestone_epochs); i++)
        if (step >= ceil(tt_json_number(tt_json_at(kwargs->milestone_epochs, i)) * (double)at.epoch))
            factor *= kwargs->gamma;
    return factor;
}

static double linear_warmup(const struct kwargs *kwargs, struct position at)
{
    (void)kwargs;
    return (double)at.step / (double)at.warmup;
}

static double min_lr_warmup(const struct kwargs *kwargs, struct position at)
{
    if (kwargs->warmup_lr_rate < 0) return (double)(at.step + 1) / (double)at.warmup;
    int64_t span = at.warmup - 1;
    return kwargs->warmup_lr_rate +
           (1.0 - kwargs->warmup_lr_rate) * (double)at.step / (double)(span > 1 ? span : 1);
}

static double stable_warmup(const struct kwargs *kwargs, struct position at)
{
    double done = (double)at.step / (double)at.warmup, shape = done;
    if (strcmp(kwargs->warmup_type, "cosine") == 0) shape = 0.5 * (1.0 - cos(M_PI * done));
    if (strcmp(kwargs->warmup_type, "1-sqrt") == 0) shape = 1.0 - sqrt(1.0 - done);
    return clamp_low(shape * (1.0 - kwargs->min_lr_ratio) + kwargs->min_lr_ratio);
}

typedef double shape_function(const struct tt_optim_config *, const struct kwargs *, struct position);
typedef double warmup_function(const struct kwargs *, struct position);

static const struct schedule {
    const char *name;
    const char *keys;        /* of lr_scheduler_kwargs, separated by blanks */
    shape_function *shape;   /* after the warm-up */
    warmup_function *warmup; /* NULL: none, regardless of the settings */
} schedules[] = {
#define SCHEDULE(name, keys, shape, warmup) {name, keys, shape, warmup},
#define REFUSED(name, instead)
#include "optim/schedules.def"
#undef SCHEDULE
#undef REFUSED
};

const char *tt_schedule_instead(const char *name)
{
#define SCHEDULE(served, keys, shape, warmup)
#define REFUSED(refused, instead)                                                                            \
    if (strcmp(name, refused) == 0) return instead;
#include "optim/schedules.def"
#undef SCHEDULE
#undef REFUSED
    return NULL;
}

static const struct schedule *find_schedule(const char *name)
{
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        if (strcmp(schedules[i].name, name) == 0) return &schedules[i];
    return NULL;
}

/* An optional list of numbers above 0. */
static tt_status read_list(const struct tt_json_value *object, const char *key,
                           const struct tt_json_value **out)
{
    const struct tt_json_value *list = tt_json_get(object, key);
    if (list == NULL || tt_json_is_null(list)) return TT_OK;
    bool good = tt_json_is_list(list);
    for (size_t i = 0; i < tt_json_count(list) && good; i++) {
        double value = tt_json_number(tt_json_at(list, i));
        good = isfinite(value) && value > 0.0;
    }
    if (!good) return tt_fail(TT_ERR_USAGE, "lr_scheduler_kwargs: %s is not a list of numbers above 0", key);
    *out = list;
    return TT_OK;
}

static bool has_key(const struct schedule *schedule, const char *key)
{
    size_t bytes = strlen(key);
    for (const char *at = schedule->keys; *at != '\0'; at += strspn(at, " ")) {
        size_t here = strcspn(at, " ");
        if (here == bytes && strncmp(at, key, bytes) == 0) return true;
        at += here;
    }
    return false;
}

/* A key of another schedule would change nothing: transformers raises a TypeError for it. */
static tt_status check_key(const struct schedule *schedule, const char *key)
{
    bool known = false;
    if (has_key(schedule, key)) return TT_OK;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) known |= has_key(&schedules[i], key);
    tt_status status = known
                           ? tt_fail(TT_ERR_USAGE, "lr_scheduler_kwargs: the schedule %s has no key '%.100s'",
                                     schedule->name, key)
                           : tt_fail(TT_ERR_USAGE, "lr_scheduler_kwargs has an unknown key '%.100s'", key);
    if (schedule->keys[0] != '\0')
        tt_hint("keys of lr_scheduler_type %s: %s", schedule->name, schedule->keys);
    else
        tt_hint("lr_scheduler_type %s has no keys: leave lr_scheduler_kwargs out", schedule->name);
    return status;
}

static tt_status read_kwargs(const struct schedule *schedule, const struct tt_json *json,
                             struct kwargs *kwargs)
{
    const char *key;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(json->root, &member, &key, &value);)
        TT_TRY(check_key(schedule, key));
    const struct tt_json_value *root = json->root;
    TT_TRY(tt_json_opt_double(json, root, "num_cycles", &kwargs->num_cycles));
    TT_TRY(tt_json_opt_double(json, root, "lr_end", &kwargs->lr_end));
    TT_TRY(tt_json_opt_double(json, root, "power", &kwargs->power));
    TT_TRY(tt_json_opt_double(json, root, "timescale", &kwargs->timescale));
    TT_TRY(tt_json_opt_double(json, root, "min_lr", &kwargs->min_lr));
    TT_TRY(tt_json_opt_double(json, root, "min_lr_rate", &kwargs->min_lr_rate));
    TT_TRY(tt_json_opt_int(json, root, "num_stable_steps", &kwargs->num_stable_steps));
    TT_TRY(tt_json_opt_int(json, root, "num_decay_steps", &kwargs->num_decay_steps));
    TT_TRY(tt_json_opt_double(json, root, "min_lr_ratio", &kwargs->min_lr_ratio));
    TT_TRY(tt_json_opt_double(json, root, "warmup_lr_rate", &kwargs->warmup_lr_rate));
    TT_TRY(tt_json_opt_string(json, root, "warmup_type", &kwargs->warmup_type));
    TT_TRY(tt_json_opt_double(json, root, "gamma", &kwargs->gamma));
    TT_TRY(tt_json_opt_double(json, root, "warmup_factor", &kwargs->warmup_factor));
    TT_TRY(read_list(root, "milestones", &kwargs->milestones));
    TT_TRY(read_list(root, "milestone_epochs", &kwargs->milestone_epochs));
    return tt_json_opt_string(json, root, "decay_type", &kwargs->decay_type);
}

/* `json` keeps the strings alive; the caller deinits it. */
static tt_status parse_kwargs(const struct tt_optim_config *config, const struct schedule *schedule,
                              struct tt_json *json, struct kwargs *kwargs)
{
    *kwargs = (struct kwargs){.num_cycles = -1,
                              .lr_end = 1e-7,
                              .power = 1.0,
                              .min_lr = -1,
                              .min_lr_rate = -1,
                              .warmup_lr_rate = -1,
                              .num_stable_steps = -1,
                              .gamma = 0.1,
                              .warmup_factor = 0.001,
                              .warmup_type = "linear",
                              .decay_type = "cosine"};
    const char *text = config->lr_scheduler_kwargs;
    if (text == NULL) return TT_OK;
    tt_status status = tt_json_parse(text, strlen(text), "lr_scheduler_kwargs", json);
    if (status == TT_ERR_DATA)
        return tt_fail(TT_ERR_USAGE,
                       "lr_scheduler_kwargs: '%.100s' is not a mapping such as {\"num_cycles\": 2}", text);
    TT_TRY(status);
    if (!tt_json_is_object(json->root)) return tt_fail(TT_ERR_USAGE, "lr_scheduler_kwargs must be a mapping");
    return read_kwargs(schedule, json, kwargs);
}

static bool is_shape(const char *name)
{
    return strcmp(name, "linear") == 0 || strcmp(name, "cosine") == 0 || strcmp(name, "1-sqrt") == 0;
}

static tt_status check_kwargs(const struct tt_optim_config *config, const struct kwargs *kwargs)
{
    const char *name = config->lr_scheduler_type;
    if (strstr(name, "_with_min_lr") != NULL && kwargs->min_lr < 0 && kwargs->min_lr_rate < 0)
        return tt_fail(TT_ERR_USAGE,
                       "lr_scheduler_type %s needs min_lr or min_lr_rate in lr_scheduler_kwargs", name);
    if (kwargs->min_lr >= 0 && kwargs->min_lr_rate >= 0)
        return tt_fail(TT_ERR_USAGE, "lr_scheduler_kwargs has min_lr and min_lr_rate, which are one thing: "
                                     "set one of them");
    if (strcmp(name, "polynomial") == 0 && !(kwargs->lr_end < config->learning_rate))
        return tt_fail(TT_ERR_USAGE, "lr_scheduler_kwargs: lr_end %g is not below learning_rate %g",
                       kwargs->lr_end, config->learning_rate);
    if (strcmp(name, "warmup_stable_decay") == 0 && kwargs->num_decay_steps <= 0)
        return tt_fail(TT_ERR_USAGE, "lr_scheduler_type warmup_stable_decay needs num_decay_steps in "
                                     "lr_scheduler_kwargs");
    if (strcmp(name, "multistep") == 0 && (kwargs->milestones == NULL) == (kwargs->milestone_epochs == NULL))
        return tt_fail(TT_ERR_USAGE, "lr_scheduler_type multistep needs either milestones (steps) or "
                                     "milestone_epochs in lr_scheduler_kwargs");
    if (!(kwargs->gamma > 0.0) || !(kwargs->warmup_factor >= 0.0 && kwargs->warmup_factor <= 1.0))
        return tt_fail(TT_ERR_USAGE,
                       "lr_scheduler_kwargs: gamma must be above 0 and warmup_factor in [0, 1]");
    if (!is_shape(kwargs->warmup_type))
        return tt_fail(TT_ERR_USAGE,
                       "lr_scheduler_kwargs: warmup_type '%s' is not one of linear, cosine, 1-sqrt",
                       kwargs->warmup_type);
    if (!is_shape(kwargs->decay_type))
        return tt_fail(TT_ERR_USAGE,
                       "lr_scheduler_kwargs: decay_type '%s' is not one of linear, cosine, 1-sqrt",
                       kwargs->decay_type);
    return TT_OK;
}

tt_status tt_schedule_check(const struct tt_optim_config *config)
{
    const struct schedule *schedule = find_schedule(config->lr_scheduler_type);
    if (schedule == NULL)
        return tt_fail(TT_ERR_INTERNAL, "lr_scheduler_type '%s' is not in the table of schedules",
                       config->lr_scheduler_type);
    struct tt_json json = {0};
    struct kwargs kwargs;
    tt_status status = parse_kwargs(config, schedule, &json, &kwargs);
    if (status == TT_OK) status = check_kwargs(config, &kwargs);
    tt_json_deinit(&json);
    return status;
}

int64_t tt_schedule_warmup_steps(const struct tt_optim_config *config, struct tt_schedule_length length)
{
    if (config->warmup_steps >= 1.0) return (int64_t)config->warmup_steps;
    double ratio = config->warmup_steps > 0.0 ? config->warmup_steps : config->warmup_ratio;
    if (ratio > 0.0) return (int64_t)ceil((double)length.total_steps * ratio);
    double epochs = ceil(config->warmup_epochs * (double)length.steps_per_epoch) - 1.0;
    return epochs > 0.0 ? (int64_t)fmin(epochs, TT_WARMUP_EPOCH_STEPS_MAX) : 0;
}

double tt_schedule_factor(const struct tt_optim_config *config, int64_t step,
                          struct tt_schedule_length length)
{
    const struct schedule *schedule = find_schedule(config->lr_scheduler_type);
    struct tt_json json = {0};
    struct kwargs kwargs;
    /* Both were checked before the run began (tt_schedule_check). */
    if (schedule == NULL || parse_kwargs(config, schedule, &json, &kwargs) != TT_OK) {
        tt_json_deinit(&json);
        return 0.0;
    }
    struct position at = {step, tt_schedule_warmup_steps(config, length), length.total_steps,
                          length.steps_per_epoch};
    double factor = schedule->warmup != NULL && step < at.warmup ? schedule->warmup(&kwargs, at)
                                                                 : schedule->shape(config, &kwargs, at);
    tt_json_deinit(&json);
    return factor;
}
