/* YAML files as a tree of texts. Safe by construction: bytes, depth and nodes are limited, and aliases count as if
 * written out; no tags but !!str; duplicate keys are refused with both lines; one document per file.
 *
 * Anchors (&name), aliases (*name) and merge keys (<<) work as in PyYAML; an alias inside its own anchor and a second
 * << in one mapping are refused.
 *
 * A scalar stays the text of the file: the caller, who knows the expected type, decides what `2e-5`, `no` or `0x10`
 * means (in YAML 1.1 the first is a string and the second false). A plain number that begins with 0 (`010`, 8 or 10) is
 * refused. */
#ifndef TT_CONFIG_YAML_H
#define TT_CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"

enum { TT_YAML_DEPTH_MAX = 32, TT_YAML_NODES_MAX = 20000, TT_YAML_BYTES_MAX = 1 << 20 };

enum tt_yaml_kind { TT_YAML_SCALAR, TT_YAML_LIST, TT_YAML_MAP };

struct tt_yaml_node {
    enum tt_yaml_kind kind;
    const char *key;                   /* of an entry of a map; NULL elsewhere */
    const char *text;                  /* of a scalar, without a 0 byte inside; NULL elsewhere */
    bool quoted;                       /* a scalar that is text in any case */
    size_t line;                       /* from 1; of the key where there is one */
    struct tt_yaml_node *first, *next; /* children in the order of the file */
};

/* An owned document. A zeroed struct is empty; deinit takes it. */
struct tt_yaml {
    struct tt_yaml_node *root; /* NULL: the file is empty */
    char *origin;              /* for messages */
    struct tt_arena arena;
};

/* Errors are TT_ERR_USAGE and name origin, line and column. */
TT_MUST_USE tt_status tt_yaml_parse(const char *text, size_t bytes, const char *origin, struct tt_yaml *yaml);
TT_MUST_USE tt_status tt_yaml_read(const char *path, struct tt_yaml *yaml);
void tt_yaml_deinit(struct tt_yaml *yaml);

/* NULL when the map has no such key. */
const struct tt_yaml_node *tt_yaml_find(const struct tt_yaml_node *map, const char *key);
/* A plain `null`, `~`, `none` or nothing at all. */
bool tt_yaml_is_null(const struct tt_yaml_node *node);
/* A new JSON value (owned by the caller), NULL when memory runs out (record set). Plain scalars become null, true,
 * false or numbers where they parse as such, strings otherwise. */
struct tt_json_value *tt_yaml_to_json(const struct tt_yaml_node *node);

#endif
