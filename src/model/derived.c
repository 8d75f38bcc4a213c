#include "model/derived.h"

#include "nn/adapter_kind.h"

static bool is_derived(const struct tt_linear *linear)
{
    return linear->vector != NULL && linear->vector->init == TT_INIT_DERIVED;
}

static tt_status note_derived(void *context, const struct tt_linear *linear)
{
    *(bool *)context |= is_derived(linear);
    return TT_OK;
}

bool tt_block_has_derived(const struct tt_block *block)
{
    bool any = false;
    return block->ops->visit_linears(block, note_derived, &any) == TT_OK && any;
}

struct deriving {
    const struct tt_pass *pass;
    const struct tt_derivation *of;
};

/* The values of the file, or the first ones. */
static tt_status take_values(const struct deriving *deriving, const struct tt_linear *linear,
                             tt_tensor values)
{
    if (!deriving->of->loaded) return linear->kind->begin(linear, deriving->pass, values);
    return tt_copy_on_device(deriving->pass->lent.stream, values.data, linear->vector->value.data,
                             tt_tensor_bytes(values));
}

static tt_status derive(void *context, const struct tt_linear *linear)
{
    const struct deriving *deriving = context;
    const struct tt_derivation *of = deriving->of;
    struct tt_workspace *workspace = deriving->pass->lent.workspace;
    tt_tensor values;
    if (!is_derived(linear)) return TT_OK;
    bool folds = !of->trains(of->context, linear->vector);
    if (of->loaded && !folds) return TT_OK;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_workspace_1d(workspace, "derived values", TT_F32, linear->out, &values));
    TT_TRY(take_values(deriving, linear, values));
    if (folds) TT_TRY(linear->kind->fold(linear, deriving->pass, values));
    TT_TRY(of->keep(of->context, linear->vector, values));
    TT_TRY(tt_stream_synchronize(deriving->pass->lent.stream));
    linear->vector->folded = folds;
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

tt_status tt_block_derive(const struct tt_block *block, const struct tt_pass *pass,
                          const struct tt_derivation *derivation)
{
    struct deriving deriving = {.pass = pass, .of = derivation};
    return block->ops->visit_linears(block, derive, &deriving);
}
