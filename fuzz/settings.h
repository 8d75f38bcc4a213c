/* The settings of a training run, for targets that need them once for each input. Making the defaults
 * compares every name with every other and takes a hundred times as long as reading a small file, so they are
 * made once and copied. */
#ifndef TT_FUZZ_SETTINGS_H
#define TT_FUZZ_SETTINGS_H

#include <stdlib.h>
#include <string.h>

#include "config/store.h"
#include "job/resolve.h"

struct fuzz_settings {
    struct tt_settings store; /* fills `config` */
    struct tt_job_spec config;
};

static void fuzz_settings_init(struct fuzz_settings *settings)
{
    static struct tt_job_spec defaults;
    static struct tt_settings *made;
    if (made == NULL && tt_job_settings_create(TT_JOB_TRAIN, &defaults, sizeof defaults, &made) != TT_OK)
        abort();
    settings->config = defaults;
    settings->store = *made;
    settings->store.target = (char *)&settings->config;
    settings->store.arena = (struct tt_arena){0}; /* the texts of the defaults stay in the other one */
    settings->store.refusals = (struct tt_str){0};
    settings->store.entries = malloc(made->count * sizeof *made->entries);
    if (settings->store.entries == NULL) abort();
    memcpy(settings->store.entries, made->entries, made->count * sizeof *made->entries);
    for (size_t i = 0; i < made->count; i++) {
        struct tt_setting_entry *entry = &settings->store.entries[i];
        if (entry->twin != NULL) entry->twin = &settings->store.entries[entry->twin - made->entries];
    }
}

static void fuzz_settings_deinit(struct fuzz_settings *settings)
{
    free(settings->store.entries);
    tt_str_deinit(&settings->store.refusals);
    tt_arena_deinit(&settings->store.arena);
}

static bool fuzz_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* The resolved file gives the same settings. Unneeded keys are not written; everything else has to agree. */
static void fuzz_settings_check_round_trip(const struct fuzz_settings *settings)
{
    struct fuzz_settings again;
    struct tt_str text = {0};
    const struct tt_setting_entry *entries = settings->store.entries;
    fuzz_settings_init(&again);
    if (tt_settings_write_yaml(&settings->store, &text) != TT_OK ||
        tt_settings_parse_yaml(&again.store, tt_str_text(&text), text.bytes, "resolved") != TT_OK)
        abort();
    for (size_t i = 0; i < settings->store.count; i++)
        if (entries[i].row->unneeded == NULL && !fuzz_same_text(entries[i].text, again.store.entries[i].text))
            abort();
    fuzz_settings_deinit(&again);
    tt_str_deinit(&text);
}

#endif
