#include "data/parquet/parquet.h"

#include "base/alloc.h"
#include "data/parquet/column.h"
#include "data/parquet/json_text.h"
#include "data/parquet/lines.h"

struct reader {
    const struct tt_file_map *file;
    struct parquet_metadata metadata;
    struct parquet_schema schema;
    struct parquet_column *columns; /* [schema.leaf_count] */
    struct parquet_lines lines;
};

bool tt_parquet_is(const struct tt_file_map *file)
{
    return parquet_is_magic(file);
}

static tt_status fail_column(const struct reader *r, size_t node, tt_status status, const char *why,
                             uint64_t at)
{
    char column[300];
    parquet_node_path(&r->schema, node, column, sizeof column);
    if (at > 0)
        return tt_fail(status, "'%s', row %llu, column '%s', byte %llu of the file: %s", r->lines.path,
                       (unsigned long long)r->lines.row, column, (unsigned long long)at, why);
    return tt_fail(status, "'%s', row %llu, column '%s': %s", r->lines.path, (unsigned long long)r->lines.row,
                   column, why);
}

/* Adds the record that a column's functions leave to their caller. */
static tt_status checked(const struct reader *r, size_t leaf, tt_status status)
{
    const struct parquet_column *column = &r->columns[leaf];
    if (status != TT_ERR_DATA && status != TT_ERR_UNSUPPORTED) return status;
    fail_column(r, r->schema.leaves[leaf], status, column->why, column->page_at);
    if (status == TT_ERR_DATA)
        tt_hint("the file is damaged: copy or download it again");
    else
        tt_hint("write the file again with Zstandard or Snappy, or as JSON Lines");
    return status;
}

static tt_status fail_levels(const struct reader *r, size_t node)
{
    fail_column(r, node, TT_ERR_DATA, "its fields do not agree on what is there", 0);
    tt_hint("the file is damaged: copy or download it again");
    return TT_ERR_DATA;
}

/* ---- A row ---- */

static tt_status write_node(struct reader *r, size_t index);

static const struct parquet_column *first_column(const struct reader *r, const struct parquet_node *node)
{
    return &r->columns[node->first_leaf];
}

/* The entries of all leaves below a part that is absent: one each, and all say so at the same level. */
static tt_status skip_absent(struct reader *r, size_t index)
{
    const struct parquet_node *node = &r->schema.nodes[index];
    for (size_t leaf = node->first_leaf; leaf < node->first_leaf + node->leaves; leaf++) {
        struct parquet_column *column = &r->columns[leaf];
        if (!column->has_entry || column->def != node->def - 1) return fail_levels(r, index);
        TT_TRY(checked(r, leaf, parquet_column_next(column)));
    }
    return TT_OK;
}

static tt_status write_leaf(struct reader *r, const struct parquet_node *node)
{
    struct parquet_column *column = &r->columns[node->first_leaf];
    size_t index = r->schema.leaves[node->first_leaf];
    struct parquet_value value;
    tt_status status = TT_OK;
    const char *why = NULL;
    if (!column->has_entry || column->def != node->def) return fail_levels(r, index);
    TT_TRY(checked(r, node->first_leaf, parquet_column_value(column, &value)));
    bool keeps = node->kind == PARQUET_KIND_BYTES && r->lines.sink.keep != NULL;
    if (!keeps) TT_TRY(parquet_lines_fits(&r->lines, value.bytes));
    if (keeps) {
        TT_TRY(parquet_lines_keep(&r->lines, value.data, value.bytes));
    } else if (!parquet_json_value(node, &value, &r->lines.text, &why, &status)) {
        if (status != TT_OK) return status;
        fail_column(r, index, TT_ERR_DATA, why, 0);
        tt_hint("write the file without this column if the training does not need it");
        return TT_ERR_DATA;
    }
    return checked(r, node->first_leaf, parquet_column_next(column));
}

static tt_status write_name(struct reader *r, size_t index, bool first)
{
    const struct tt_span name = r->schema.nodes[index].name;
    if (!first) TT_TRY(tt_str_append_text(&r->lines.text, ", "));
    TT_TRY(parquet_json_string(name.data, name.bytes, &r->lines.text));
    return tt_str_append_text(&r->lines.text, ": ");
}

static tt_status write_object(struct reader *r, size_t index)
{
    size_t end = r->schema.nodes[index].next;
    TT_TRY(tt_str_append_char(&r->lines.text, '{'));
    for (size_t i = index + 1; i < end; i = r->schema.nodes[i].next) {
        TT_TRY(write_name(r, i, i == index + 1));
        TT_TRY(write_node(r, i));
    }
    return tt_str_append_char(&r->lines.text, '}');
}

/* Whether one more element of the repeated node follows; all its leaves must agree. */
static tt_status next_element(const struct reader *r, size_t index, bool *more)
{
    const struct parquet_node *node = &r->schema.nodes[index];
    for (size_t leaf = node->first_leaf; leaf < node->first_leaf + node->leaves; leaf++) {
        const struct parquet_column *column = &r->columns[leaf];
        bool goes_on = column->has_entry && column->rep == node->rep;
        if (column->has_entry && column->rep > node->rep) return fail_levels(r, index);
        if (leaf > node->first_leaf && goes_on != *more) return fail_levels(r, index);
        *more = goes_on;
    }
    return TT_OK;
}

static tt_status write_value(struct reader *r, size_t index);

/* One element of a list, one pair of a map, or an element of a field that is repeated without being a list. */
static tt_status write_element(struct reader *r, size_t owner, size_t repeated)
{
    const struct parquet_node *nodes = r->schema.nodes;
    if (owner == repeated) return write_value(r, repeated);
    if (nodes[owner].kind == PARQUET_KIND_MAP) {
        if (nodes[repeated + 1].kind == PARQUET_KIND_BYTES && r->lines.sink.keep != NULL)
            return fail_column(r, repeated + 1, TT_ERR_DATA, "the key of a map is no text", 0);
        TT_TRY(write_leaf(r, &nodes[repeated + 1]));
        TT_TRY(tt_str_append_text(&r->lines.text, ": "));
        return write_node(r, nodes[repeated + 1].next);
    }
    if (nodes[owner].kind == PARQUET_KIND_LIST && nodes[owner].element != repeated)
        return write_node(r, nodes[owner].element);
    return write_value(r, repeated);
}

static tt_status write_repeated(struct reader *r, size_t owner, size_t repeated)
{
    const struct parquet_node *node = &r->schema.nodes[repeated];
    bool map = r->schema.nodes[owner].kind == PARQUET_KIND_MAP && owner != repeated, more = true;
    if (!first_column(r, node)->has_entry) return fail_levels(r, repeated);
    if (first_column(r, node)->def < node->def) {
        TT_TRY(tt_str_append_text(&r->lines.text, map ? "{}" : "[]"));
        return skip_absent(r, repeated);
    }
    TT_TRY(tt_str_append_char(&r->lines.text, map ? '{' : '['));
    while (more) {
        TT_TRY(parquet_lines_check(&r->lines));
        TT_TRY(write_element(r, owner, repeated));
        TT_TRY(next_element(r, repeated, &more));
        if (more) TT_TRY(tt_str_append_text(&r->lines.text, ", "));
    }
    return tt_str_append_char(&r->lines.text, map ? '}' : ']');
}

/* A node that is there. */
static tt_status write_value(struct reader *r, size_t index)
{
    const struct parquet_node *node = &r->schema.nodes[index];
    if (node->type != PARQUET_GROUP) return write_leaf(r, node);
    if (node->kind == PARQUET_KIND_OBJECT) return write_object(r, index);
    return write_repeated(r, index, index + 1);
}

static tt_status write_node(struct reader *r, size_t index)
{
    const struct parquet_node *node = &r->schema.nodes[index];
    if (node->repetition == PARQUET_REPEATED) return write_repeated(r, index, index);
    if (node->repetition == PARQUET_REQUIRED) return write_value(r, index);
    if (!first_column(r, node)->has_entry) return fail_levels(r, index);
    if (first_column(r, node)->def >= node->def) return write_value(r, index);
    TT_TRY(tt_str_append_text(&r->lines.text, "null"));
    return skip_absent(r, index);
}

/* ---- Rows ---- */

static tt_status write_row(struct reader *r)
{
    parquet_lines_begin(&r->lines);
    for (size_t leaf = 0; leaf < r->schema.leaf_count; leaf++)
        if (r->columns[leaf].has_entry && r->columns[leaf].rep != 0)
            return fail_levels(r, r->schema.leaves[leaf]);
    TT_TRY(write_object(r, 0));
    return parquet_lines_end(&r->lines);
}

static tt_status open_group(struct reader *r, const struct parquet_row_group *group)
{
    if (group->chunk_count != r->schema.leaf_count)
        return tt_fail(TT_ERR_DATA, "'%s', row %llu: the row group has %zu columns, the schema %zu",
                       r->lines.path, (unsigned long long)r->lines.row + 1, group->chunk_count,
                       r->schema.leaf_count);
    r->lines.row++;
    for (size_t leaf = 0; leaf < r->schema.leaf_count; leaf++) {
        TT_TRY(checked(r, leaf,
                       parquet_column_open(&r->columns[leaf], r->file,
                                           &r->metadata.chunks[group->first_chunk + leaf],
                                           r->metadata.data_bytes)));
    }
    r->lines.row--;
    return TT_OK;
}

static tt_status read_group(struct reader *r, const struct parquet_row_group *group)
{
    if (group->rows == 0) return TT_OK;
    TT_TRY(open_group(r, group));
    for (int64_t i = 0; i < group->rows; i++) {
        if (parquet_lines_full(&r->lines)) return TT_OK;
        TT_TRY(write_row(r));
    }
    for (size_t leaf = 0; leaf < r->schema.leaf_count; leaf++)
        if (r->columns[leaf].has_entry || r->columns[leaf].left > 0)
            return fail_column(r, r->schema.leaves[leaf], TT_ERR_DATA, "it has more values than rows", 0);
    return TT_OK;
}

static tt_status make_columns(struct reader *r)
{
    r->columns = tt_calloc(r->schema.leaf_count, sizeof *r->columns);
    if (r->columns == NULL) return TT_ERR_MEMORY;
    for (size_t leaf = 0; leaf < r->schema.leaf_count; leaf++) {
        r->columns[leaf].node = &r->schema.nodes[r->schema.leaves[leaf]];
        r->columns[leaf].page_bytes_max =
            r->lines.limits->page_bytes > 0 ? r->lines.limits->page_bytes : INT32_MAX;
    }
    return TT_OK;
}

tt_status tt_parquet_read_into(const char *path, const struct tt_file_map *file,
                               const struct tt_parquet_limits *limits, const struct tt_parquet_sink *sink)
{
    struct reader r = {.file = file, .lines = {path, limits, *sink, {0}, 0, 0, 0}};
    tt_status status = TT_OK;
    TT_GO(parquet_metadata_read(path, file, &r.metadata));
    TT_GO(parquet_schema_make(path, &r.metadata, &r.schema));
    TT_GO(make_columns(&r));
    for (size_t i = 0; i < r.metadata.group_count; i++) TT_GO(read_group(&r, &r.metadata.groups[i]));
    status = parquet_lines_flush(&r.lines);
out:
    for (size_t leaf = 0; r.columns != NULL && leaf < r.schema.leaf_count; leaf++)
        parquet_column_deinit(&r.columns[leaf]);
    tt_free(r.columns);
    tt_str_deinit(&r.lines.text);
    parquet_schema_deinit(&r.schema);
    parquet_metadata_deinit(&r.metadata);
    return status;
}

tt_status tt_parquet_read(const char *path, const struct tt_file_map *file,
                          const struct tt_parquet_limits *limits,
                          tt_status (*put)(void *context, const char *data, size_t bytes), void *context)
{
    const struct tt_parquet_sink sink = {.put = put, .context = context};
    return tt_parquet_read_into(path, file, limits, &sink);
}

tt_status tt_parquet_note(const char *path, const struct tt_file_map *file, const char *key,
                          struct tt_span *value)
{
    struct parquet_metadata metadata = {0};
    *value = (struct tt_span){0};
    TT_TRY(parquet_metadata_read(path, file, &metadata));
    for (size_t i = 0; i < metadata.note_count && value->data == NULL; i++)
        if (tt_span_equals(metadata.notes[i].key, key)) *value = metadata.notes[i].value;
    parquet_metadata_deinit(&metadata);
    return TT_OK;
}
