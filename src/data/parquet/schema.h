/* The columns of a Parquet file as a tree, in the shapes that rows of JSON have: texts, numbers, lists, objects.
 *
 * A node's levels count, from the root to it and with it: `def` the parts that may be absent (optional or repeated),
 * `rep` the repeated ones. A leaf stores both for each of its entries; def below the leaf's own says which part is
 * absent, and rep which list goes on. */
#ifndef TT_DATA_PARQUET_SCHEMA_H
#define TT_DATA_PARQUET_SCHEMA_H

#include "data/parquet/metadata.h"

enum parquet_kind {
    PARQUET_KIND_TEXT,
    PARQUET_KIND_BYTES, /* no text by its type: read as text where it is UTF-8 */
    PARQUET_KIND_BOOLEAN,
    PARQUET_KIND_SIGNED,
    PARQUET_KIND_UNSIGNED,
    PARQUET_KIND_FLOAT16,
    PARQUET_KIND_FLOAT,
    PARQUET_KIND_DOUBLE,
    PARQUET_KIND_DECIMAL,
    PARQUET_KIND_DATE,
    PARQUET_KIND_TIME,
    PARQUET_KIND_TIMESTAMP,
    PARQUET_KIND_INT96, /* a time of day and a day */
    PARQUET_KIND_UUID,
    PARQUET_KIND_OBJECT, /* the children are its members */
    PARQUET_KIND_LIST,   /* child: what is repeated; `element` is its node or that node's only child */
    PARQUET_KIND_MAP,    /* child: the repeated pair of key and value */
};

struct parquet_node {
    struct tt_span name;
    enum parquet_kind kind;
    enum parquet_type type;
    enum parquet_repetition repetition;
    int def, rep;
    size_t parent, next; /* next: behind all nodes below this one; its first child is the node after it */
    size_t first_leaf, leaves; /* below it, or itself */
    size_t element;            /* of a list */
    int32_t bytes, scale;
    int unit;
    bool utc;
};

struct parquet_schema {
    struct parquet_node *nodes; /* the root first; every node before the nodes below it */
    size_t count;
    size_t *leaves; /* their nodes */
    size_t leaf_count;
};

TT_MUST_USE tt_status parquet_schema_make(const char *path, const struct parquet_metadata *metadata,
                                          struct parquet_schema *schema);
void parquet_schema_deinit(struct parquet_schema *schema);
/* "messages.list.element.content", for messages; returns `text`. */
const char *parquet_node_path(const struct parquet_schema *schema, size_t node, char *text,
                              size_t text_bytes);

#endif
