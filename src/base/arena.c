#include "base/arena.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"

enum { ARENA_ALIGNMENT = 16, ARENA_FIRST_BYTES = 4096, ARENA_LARGEST_BYTES = 1 << 20 };

struct tt_arena_chunk {
    struct tt_arena_chunk *next;
    size_t used;
    size_t capacity;
    _Alignas(ARENA_ALIGNMENT) unsigned char data[];
};

/* Chunks double up to a megabyte, so that small arenas stay small and large ones make few allocations. */
static struct tt_arena_chunk *add_chunk(struct tt_arena *arena, size_t bytes)
{
    size_t capacity = arena->chunks != NULL ? arena->chunks->capacity * 2 : ARENA_FIRST_BYTES;
    if (capacity > ARENA_LARGEST_BYTES) capacity = ARENA_LARGEST_BYTES;
    if (capacity < bytes) capacity = bytes;
    size_t total;
    if (__builtin_add_overflow(capacity, sizeof(struct tt_arena_chunk), &total)) {
        tt_fail(TT_ERR_MEMORY, "out of memory: cannot allocate %zu bytes from an arena", bytes);
        return NULL;
    }
    struct tt_arena_chunk *chunk = tt_calloc(1, total);
    if (chunk == NULL) return NULL;
    chunk->capacity = capacity;
    /* A chunk for one large block goes behind the newest chunk, whose free space stays in use. */
    if (arena->chunks != NULL && bytes > ARENA_LARGEST_BYTES / 2) {
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
    } else {
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    return chunk;
}

void *tt_arena_alloc(struct tt_arena *arena, size_t bytes)
{
    size_t rounded;
    if (__builtin_add_overflow(bytes, (size_t)(ARENA_ALIGNMENT - 1), &rounded)) {
        tt_fail(TT_ERR_MEMORY, "out of memory: cannot allocate %zu bytes from an arena", bytes);
        return NULL;
    }
    rounded &= ~(size_t)(ARENA_ALIGNMENT - 1);
    if (rounded == 0) rounded = ARENA_ALIGNMENT;
    struct tt_arena_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->capacity - chunk->used < rounded) chunk = add_chunk(arena, rounded);
    if (chunk == NULL) return NULL;
    void *block = chunk->data + chunk->used;
    chunk->used += rounded;
    return block;
}

char *tt_arena_strndup(struct tt_arena *arena, const char *text, size_t bytes)
{
    size_t length = strnlen(text, bytes);
    char *copy = tt_arena_alloc(arena, length + 1);
    if (copy != NULL) memcpy(copy, text, length);
    return copy;
}

char *tt_arena_strdup(struct tt_arena *arena, const char *text)
{
    return tt_arena_strndup(arena, text, strlen(text));
}

char *tt_arena_printf(struct tt_arena *arena, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = tt_vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = NULL;
    if (length < 0) {
        tt_fail(TT_ERR_INTERNAL, "cannot format '%s'", format);
    } else {
        text = tt_arena_alloc(arena, (size_t)length + 1);
        if (text != NULL) tt_vsnprintf(text, (size_t)length + 1, format, again);
    }
    va_end(again);
    return text;
}

void tt_arena_deinit(struct tt_arena *arena)
{
    while (arena->chunks != NULL) {
        struct tt_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        tt_free(chunk);
    }
}
