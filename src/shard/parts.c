/* Units whose frozen matrix is gathered in parts: a table or head of a large vocabulary. Each part is a unit that
 * only this file gathers, waits for and releases; at most one is lent, and one more is on its way. */
#include "base/alloc.h"
#include "base/str.h"
#include "shard/shard_impl.h"

static tt_status create_parts(struct tt_unit *unit, tt_param *param, int64_t rows)
{
    tt_status status = TT_OK;
    int64_t total = param->dims[0];
    int count = (int)((total + rows - 1) / rows);
    unit->parts = tt_calloc((size_t)count, sizeof(struct tt_unit *));
    if (unit->parts == NULL) return TT_ERR_MEMORY;
    for (int i = 0; i < count && status == TT_OK; i++) {
        struct tt_str name = {0};
        struct row_range range = {param, i * rows, i + 1 < count ? rows : total - i * rows};
        status = tt_str_printf(&name, "%s, part %d of %d", unit->name, i + 1, count);
        if (status == TT_OK)
            status =
                tt_unit_make(unit->context, tt_str_text(&name), &param, 1, 1, false, range, &unit->parts[i]);
        tt_str_deinit(&name);
        if (status == TT_OK) unit->part_count = i + 1;
    }
    return status;
}

tt_status tt_unit_create_split(struct tt_shard_context *context, const char *name, tt_param *const *params,
                               size_t param_count, int user_count, const struct tt_unit_split *split,
                               struct tt_unit **out)
{
    tt_status status = TT_OK;
    tt_param *matrix = NULL, **others = tt_calloc(param_count + 1, sizeof *others);
    struct tt_unit *unit = NULL;
    size_t count = 0;
    if (others == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < param_count; i++) {
        if (params[i] == split->param)
            matrix = params[i];
        else
            others[count++] = params[i];
    }
    if (matrix == NULL || matrix->trainable || tt_param_is_quantized(matrix) || split->rows < 1)
        TT_GO(tt_fail(TT_ERR_INTERNAL, "unit '%s' cannot be split", name));
    TT_GO(tt_unit_make(context, name, others, count, user_count, true, (struct row_range){0}, &unit));
    TT_GO(create_parts(unit, matrix, split->rows));
    *out = unit;
out:
    if (status != TT_OK) tt_unit_destroy(unit);
    tt_free(others);
    return status;
}

void tt_unit_destroy_parts(struct tt_unit *unit)
{
    for (int i = 0; i < unit->part_count; i++) tt_unit_destroy(unit->parts[i]);
    unit->part_count = 0;
    tt_free(unit->parts);
    unit->parts = NULL;
}

tt_status tt_unit_take_part(struct tt_unit *unit, int part, int next)
{
    if (unit->holders == 0 || part < 0 || part >= unit->part_count || next >= unit->part_count)
        return tt_unit_fail_state(unit, "use of a part");
    if (unit->part != part) {
        TT_TRY(tt_unit_drop_part(unit));
        TT_TRY(tt_unit_gather(unit->parts[part]));
        TT_TRY(tt_unit_wait(unit->parts[part]));
        unit->part = part;
    }
    if (next < 0 || next == part || !tt_shard_has_free_slot(unit->context)) return TT_OK;
    return tt_unit_gather(unit->parts[next]);
}

tt_status tt_unit_drop_part(struct tt_unit *unit)
{
    int part = unit->part;
    unit->part = -1;
    return part < 0 ? TT_OK : tt_unit_release(unit->parts[part], false);
}

int tt_unit_part_count(const struct tt_unit *unit)
{
    return unit->part_count;
}

const tt_param *tt_unit_matrix(const struct tt_unit *unit)
{
    return unit->part_count > 0 ? unit->parts[0]->members[0].param : NULL;
}

int64_t tt_unit_part_rows(const struct tt_unit *unit)
{
    return unit->part_count > 0 ? unit->parts[0]->members[0].rows : 0;
}
