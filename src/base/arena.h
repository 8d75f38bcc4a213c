/* An arena: many small allocations with one lifetime. Not thread safe. Pointers stay valid until deinit/reset. */
#ifndef TT_BASE_ARENA_H
#define TT_BASE_ARENA_H

#include <stddef.h>

struct tt_arena {
    struct tt_arena_chunk *chunks; /* newest first */
};

/* A zeroed struct is a valid empty arena. All return NULL with the error record set when memory runs out. */
void *tt_arena_alloc(struct tt_arena *arena, size_t bytes); /* zeroed, 16-byte aligned */
char *tt_arena_strdup(struct tt_arena *arena, const char *text);
char *tt_arena_strndup(struct tt_arena *arena, const char *text, size_t bytes);
char *tt_arena_printf(struct tt_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tt_arena_deinit(struct tt_arena *arena);

#endif
