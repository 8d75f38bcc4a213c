/* Keys of the configurations of other trainers (elsewhere.def). */
#ifndef TT_CONFIG_FOREIGN_H
#define TT_CONFIG_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

enum tt_foreign_kind {
    TT_FOREIGN_NAMED,     /* the setting has the same meaning */
    TT_FOREIGN_WORDS,     /* so have its `words` */
    TT_FOREIGN_NOTHING,   /* without effect here, for the reason in `what` */
    TT_FOREIGN_OFF,       /* without effect at one of `words` */
    TT_FOREIGN_ELSEWHERE, /* `what` to do instead */
};

/* All texts are constants. `words` of WORDS: "theirs=ours" separated by blanks, nothing behind '=' for
 * no value, "*=*" for all others; of OFF: values separated by blanks. */
struct tt_foreign_key {
    enum tt_foreign_kind kind;
    const char *key, *program;
    const char *setting; /* NULL: none takes its place */
    const char *words;   /* of WORDS and OFF */
    const char *what;    /* NULL: the setting has the same meaning */
};

/* The row of a key, of `program` or (NULL) of the first that has it; NULL: there is none. */
const struct tt_foreign_key *tt_foreign_find(const char *program, const char *key);
/* Whether a value is without effect here. `value` NULL is null. */
bool tt_foreign_is_idle(const struct tt_foreign_key *row, const char *value);

#endif
