/* Settings shared by the commands that answer conversations: chat and serve. */
#ifndef TT_CLI_TALK_CALL_H
#define TT_CLI_TALK_CALL_H

#include "cli/commands.h"
#include "infer/sampling_defaults.h"
#include "job/settings.h"
#include "job/spec.h"
#include "serve/talk.h"

/* The first member of the command's struct. */
struct tt_talk_call {
    struct tt_generate_spec spec; /* must be first: the offsets of its settings apply here */
    const char *chat_template_path, *date;
    int64_t context_length;
    int generation_config; /* enum tt_generation_config_use */
    struct tt_sampling_given given;
};
enum tt_generation_config_use { TT_GENERATION_CONFIG_AUTO, TT_GENERATION_CONFIG_NONE };

/* Fills `sections` [TT_COMMAND_SECTIONS_MAX] with `own` under `title`, the rows of struct tt_talk_call and those of
 * generation. Returns their number. */
size_t tt_talk_call_sections(const char *title, const struct tt_setting *own,
                             struct tt_setting_section *sections);
TT_MUST_USE tt_status tt_talk_call_resolve(struct tt_talk_call *call, struct tt_settings *settings);
/* The sampling of answers to requests that say nothing of it: by the settings, then by the model's
 * generation_config.json, whose part is printed. */
TT_MUST_USE tt_status tt_talk_call_sampling(const struct tt_talk_call *call, const struct tt_inputs *inputs,
                                            struct tt_report *report, struct tt_sampling_options *sampling);
/* Loads the model on the ranks of the run, each with memory for `slots` conversations, and calls `lead` on the thread
 * of rank 0 with a talk over them. `begin`, unless NULL, is called in its process before the weights are loaded. */
typedef tt_status tt_talk_begin(void *context, struct tt_generation_limits *limits);
typedef tt_status tt_talk_lead(void *context, struct tt_talk *talk);
TT_MUST_USE tt_status tt_talk_call_run(const struct tt_talk_call *call, const struct tt_cancel *cancel,
                                       int64_t slots, tt_talk_begin *begin, tt_talk_lead *lead,
                                       void *context);

#endif
