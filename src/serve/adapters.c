#include "serve/adapters.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"

enum state { FREE, LOADING, READY, LEAVING };

struct place {
    enum state state;
    char *name;   /* owned; NULL: free */
    size_t users; /* requests that have it */
};

struct tt_serve_adapters {
    pthread_mutex_t lock;
    size_t count;
    struct place places[];
};

static void clear(struct place *place)
{
    tt_free(place->name);
    *place = (struct place){0};
}

static bool fill(struct place *place, enum state state, const char *name)
{
    *place = (struct place){state, tt_strdup(name), 0};
    if (place->name != NULL) return true;
    clear(place);
    return false;
}

tt_status tt_serve_adapters_create(const char *const *names, size_t count, size_t places,
                                   struct tt_serve_adapters **out)
{
    struct tt_serve_adapters *adapters = tt_calloc(1, sizeof *adapters + places * sizeof *adapters->places);
    if (adapters == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&adapters->lock, NULL);
    adapters->count = places;
    for (size_t i = 0; i < count; i++) {
        if (fill(&adapters->places[i], READY, names[i])) continue;
        tt_serve_adapters_destroy(adapters);
        return TT_ERR_MEMORY;
    }
    *out = adapters;
    return TT_OK;
}

void tt_serve_adapters_destroy(struct tt_serve_adapters *adapters)
{
    if (adapters == NULL) return;
    for (size_t i = 0; i < adapters->count; i++) clear(&adapters->places[i]);
    pthread_mutex_destroy(&adapters->lock);
    tt_free(adapters);
}

/* The place of that name, or the first one that is ready; -1: none. The caller holds the lock. */
static int find(const struct tt_serve_adapters *adapters, const char *name)
{
    for (size_t i = 0; i < adapters->count; i++) {
        const struct place *place = &adapters->places[i];
        if (place->state == READY && (name == NULL || strcmp(place->name, name) == 0)) return (int)i;
    }
    return -1;
}

bool tt_serve_adapters_use(struct tt_serve_adapters *adapters, const char *name, int *place,
                           const char **shown)
{
    pthread_mutex_lock(&adapters->lock);
    int found = find(adapters, name);
    if (found >= 0) {
        adapters->places[found].users++;
        *place = found;
        *shown = adapters->places[found].name;
    }
    pthread_mutex_unlock(&adapters->lock);
    return found >= 0;
}

void tt_serve_adapters_leave(struct tt_serve_adapters *adapters, int index)
{
    struct place *place = &adapters->places[index];
    pthread_mutex_lock(&adapters->lock);
    if (--place->users == 0 && place->state == LEAVING) clear(place);
    pthread_mutex_unlock(&adapters->lock);
}

bool tt_serve_adapters_have(struct tt_serve_adapters *adapters, const char *name)
{
    pthread_mutex_lock(&adapters->lock);
    bool has = find(adapters, name) >= 0;
    pthread_mutex_unlock(&adapters->lock);
    return has;
}

enum tt_serve_adapter_answer tt_serve_adapters_begin(struct tt_serve_adapters *adapters, const char *name,
                                                     int *index)
{
    enum tt_serve_adapter_answer answer = TT_SERVE_ADAPTER_FULL;
    pthread_mutex_lock(&adapters->lock);
    for (size_t i = 0; i < adapters->count && answer != TT_SERVE_ADAPTER_THERE; i++) {
        struct place *place = &adapters->places[i];
        bool named = place->state == READY || place->state == LOADING;
        if (named && strcmp(place->name, name) == 0) answer = TT_SERVE_ADAPTER_THERE;
    }
    for (size_t i = 0; i < adapters->count && answer == TT_SERVE_ADAPTER_FULL; i++) {
        if (adapters->places[i].state != FREE) continue;
        bool filled = fill(&adapters->places[i], LOADING, name);
        answer = filled ? TT_SERVE_ADAPTER_DONE : TT_SERVE_ADAPTER_NONE;
        *index = (int)i;
    }
    pthread_mutex_unlock(&adapters->lock);
    return answer;
}

void tt_serve_adapters_end(struct tt_serve_adapters *adapters, int place, bool loaded)
{
    pthread_mutex_lock(&adapters->lock);
    if (loaded)
        adapters->places[place].state = READY;
    else
        clear(&adapters->places[place]);
    pthread_mutex_unlock(&adapters->lock);
}

enum tt_serve_adapter_answer tt_serve_adapters_remove(struct tt_serve_adapters *adapters, const char *name)
{
    pthread_mutex_lock(&adapters->lock);
    int found = find(adapters, name);
    if (found >= 0) {
        struct place *place = &adapters->places[found];
        place->state = LEAVING;
        if (place->users == 0) clear(place);
    }
    pthread_mutex_unlock(&adapters->lock);
    return found >= 0 ? TT_SERVE_ADAPTER_DONE : TT_SERVE_ADAPTER_NONE;
}

void tt_serve_adapters_visit(struct tt_serve_adapters *adapters, tt_serve_adapter_see *see, void *context)
{
    pthread_mutex_lock(&adapters->lock);
    for (size_t i = 0; i < adapters->count; i++)
        if (adapters->places[i].state == READY) see(context, adapters->places[i].name);
    pthread_mutex_unlock(&adapters->lock);
}
