#include <math.h>
#include <stddef.h>

#include "infer/generator.h"
#include "job/settings.h"

#define FIELD(member) .offset = offsetof(struct tt_generate_config, member)

/* One row reads as one paragraph. None is part of a training run's resolved file. */
/* clang-format off */
const struct tt_setting tt_generate_settings[] = {
    {.name = "max_new_tokens", .type = TT_SETTING_INT, FIELD(max_new_tokens), .default_text = "128",
     .transient = true, .minimum = 1, .maximum = 1 << 20, .help = "Most tokens of a completion."},
    {.name = "do_sample", .aliases = "sample", .type = TT_SETTING_TRISTATE, FIELD(do_sample),
     .transient = true,
     .help = "Draw tokens instead of taking the likeliest; null: when temperature, top_k or top_p is given."},
    {.name = "temperature", .type = TT_SETTING_DOUBLE, FIELD(temperature), .default_text = "1",
     .transient = true, .minimum = 0, .maximum = 1000,
     .help = "Logits are divided by it; 0 takes the likeliest token."},
    {.name = "top_k", .type = TT_SETTING_INT, FIELD(top_k), .default_text = "0", .null_text = "0",
     .transient = true, .minimum = 0, .maximum = INFINITY,
     .help = "Draw from that many likeliest tokens; 0: from all."},
    {.name = "top_p", .type = TT_SETTING_DOUBLE, FIELD(top_p), .default_text = "1", .null_text = "1",
     .transient = true, .minimum = 1e-6, .maximum = 1,
     .help = "Draw from the likeliest tokens that hold this share of the probability."},
    {.name = "ignore_eos", .type = TT_SETTING_BOOL, FIELD(ignore_eos), .default_text = "false",
     .transient = true, .help = "Go on after the end token."},
    {.name = NULL},
};
/* clang-format on */

static bool wants_sampling(const struct tt_generate_config *config, const struct tt_settings *settings)
{
    if (config->temperature == 0) return false;
    if (config->do_sample >= 0) return config->do_sample == 1;
    return tt_settings_is_set(settings, "temperature") || tt_settings_is_set(settings, "top_k") ||
           tt_settings_is_set(settings, "top_p");
}

void tt_generate_options_resolve(const struct tt_generate_config *config, const struct tt_settings *settings,
                                 int64_t seed, struct tt_generate_options *options)
{
    *options = (struct tt_generate_options){
        .max_new_tokens = config->max_new_tokens,
        .sample = wants_sampling(config, settings),
        .temperature = config->temperature > 0 ? config->temperature : 1.0,
        .top_k = config->top_k,
        .top_p = config->top_p,
        .seed = (uint64_t)seed,
        .ignore_eos = config->ignore_eos,
    };
}
