/* The tree of tokens: nodes in the order of a walk from the root, each before those below it. Internal to
 * src/grammar. */
#ifndef TT_GRAMMAR_VOCABULARY_IMPL_H
#define TT_GRAMMAR_VOCABULARY_IMPL_H

#include "grammar/vocabulary.h"

enum { VOCABULARY_ID_BYTES = 7, VOCABULARY_NONE = -1 };

struct vocabulary_node {
    uint32_t end;   /* the next node that is not below this one */
    int32_t token;  /* the first token of these bytes; VOCABULARY_NONE */
    uint16_t depth; /* bytes; 0: the root */
    uint8_t byte;
};

struct tt_vocabulary {
    int64_t count;
    struct vocabulary_node *nodes;
    size_t node_count, node_capacity;
    int32_t *same;  /* [count], the next token of the same bytes */
    size_t *begins; /* [count + 1], of the bytes of each token */
    char *bytes;
    size_t byte_count, byte_capacity;
    uint32_t space;   /* the node of a space below the root; 0: none */
    bool drops_space; /* a space at the begin of a text is not shown */
    bool alphabet[256];
    uint16_t depth; /* of the deepest node */
};

/* The bytes of a token without text. */
void vocabulary_id_bytes(int32_t id, char bytes[VOCABULARY_ID_BYTES]);
struct tt_span vocabulary_bytes(const struct tt_vocabulary *vocabulary, int32_t id);

#endif
