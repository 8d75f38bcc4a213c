#include "run/source_fields.h"

#include <string.h>

#include "base/alloc.h"

static tt_status add(struct tt_source_fields *all, const char *source, const char *metric, double value)
{
    struct tt_str *name = &all->names[all->count];
    tt_status status = tt_str_printf(name, "eval_%s_%s", source, metric);
    all->fields[all->count++] = (struct tt_log_field){tt_str_text(name), value};
    return status;
}

static tt_status add_source(struct tt_source_fields *all, const struct tt_sources *sources, size_t index,
                            const struct tt_source_figures *figures)
{
    struct tt_str label = {0};
    tt_status status = tt_sources_label(sources, index, &label);
    const char *name = tt_str_text(&label);
    if (status == TT_OK) status = add(all, name, "loss", figures->loss);
    if (status == TT_OK) status = add(all, name, "mean_token_accuracy", figures->accuracy);
    if (status == TT_OK) status = add(all, name, "tokens", (double)figures->tokens);
    tt_str_deinit(&label);
    return status;
}

tt_status tt_source_fields_init(struct tt_source_fields *all, const struct tt_log_field *first,
                                int first_count, const struct tt_sources *sources,
                                const struct tt_by_source *by_source)
{
    tt_status status = TT_OK;
    size_t count = (size_t)first_count + by_source->count * 3;
    *all = (struct tt_source_fields){.fields = tt_calloc(count, sizeof *all->fields),
                                     .names = tt_calloc(count, sizeof *all->names)};
    if (all->fields == NULL || all->names == NULL) TT_GO(TT_ERR_MEMORY);
    memcpy(all->fields, first, (size_t)first_count * sizeof *first);
    all->count = first_count;
    for (size_t i = 0; i < by_source->count; i++)
        if (by_source->list[i].tokens > 0) TT_GO(add_source(all, sources, i, &by_source->list[i]));
out:
    if (status != TT_OK) tt_source_fields_deinit(all);
    return status;
}

void tt_source_fields_deinit(struct tt_source_fields *all)
{
    for (int i = 0; i < all->count; i++) tt_str_deinit(&all->names[i]);
    tt_free(all->names);
    tt_free(all->fields);
    *all = (struct tt_source_fields){0};
}
