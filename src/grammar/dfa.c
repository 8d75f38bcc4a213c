#include "grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void dfa_deinit(struct dfa *dfa)
{
    tt_free(dfa->next);
    tt_free(dfa->accepts);
    *dfa = (struct dfa){0};
}

/* A new state, whose transitions are dead. */
static uint32_t add_state(struct grammar_work *work, struct dfa *dfa, bool accepts)
{
    if (!grammar_spend(work, dfa->classes / 4 + 2, dfa->classes * sizeof *dfa->next + 1)) return 0;
    size_t cells = (size_t)(dfa->states + 1) * dfa->classes;
    tt_status status = tt_grow(&dfa->accepts, dfa->states, &dfa->accepts_capacity);
    if (status == TT_OK && cells > dfa->capacity)
        status =
            tt_reserve(&dfa->next, cells > 2 * dfa->capacity ? cells : 2 * dfa->capacity, &dfa->capacity);
    if (status != TT_OK) {
        grammar_fail(work, status);
        return 0;
    }
    memset(dfa->next + (cells - dfa->classes), 0xFF, dfa->classes * sizeof *dfa->next);
    dfa->accepts[dfa->states] = accepts;
    return dfa->states++;
}

/* Gives the bytes with the same keys one class, in the order of the bytes. */
static void make_classes(const uint32_t keys[256], struct dfa *dfa)
{
    dfa->classes = 0;
    for (int b = 0; b < 256; b++) {
        int same = 0;
        while (same < b && keys[same] != keys[b]) same++;
        dfa->class_of[b] = same < b ? dfa->class_of[same] : (uint8_t)dfa->classes++;
    }
}

/* ---- Lists of numbers to numbers ---- */

/* Sets of states, or pairs of them, and their numbers: open addressing, at most half full. */
struct sets {
    uint32_t *pool; /* one list after the other */
    size_t pooled, capacity;
    size_t *begins; /* [count + 1] */
    size_t count, begins_capacity;
    uint32_t *slots; /* number + 1, or 0 */
    size_t slot_count;
};

static void sets_deinit(struct sets *sets)
{
    tt_free(sets->pool);
    tt_free(sets->begins);
    tt_free(sets->slots);
}

static uint64_t hash_list(const uint32_t *list, size_t count)
{
    uint64_t hash = count + 1;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ list[i]) * UINT64_C(0x9E3779B97F4A7C15), hash ^= hash >> 29;
    return hash;
}

static void place(struct sets *sets, size_t number)
{
    size_t begin = sets->begins[number], mask = sets->slot_count - 1;
    size_t at = hash_list(sets->pool + begin, sets->begins[number + 1] - begin) & mask;
    while (sets->slots[at] != 0) at = (at + 1) & mask;
    sets->slots[at] = (uint32_t)number + 1;
}

static tt_status widen(struct sets *sets)
{
    size_t wanted = sets->slot_count > 0 ? 2 * sets->slot_count : 64;
    uint32_t *slots = tt_calloc(wanted, sizeof *slots);
    if (slots == NULL) return TT_ERR_MEMORY;
    tt_free(sets->slots);
    sets->slots = slots;
    sets->slot_count = wanted;
    for (size_t i = 0; i < sets->count; i++) place(sets, i);
    return TT_OK;
}

static tt_status append(struct sets *sets, const uint32_t *list, size_t count)
{
    TT_TRY(tt_reserve(&sets->begins, sets->count + 2, &sets->begins_capacity));
    if (sets->pooled + count > sets->capacity)
        TT_TRY(tt_reserve(&sets->pool, 2 * (sets->pooled + count), &sets->capacity));
    if (count > 0) memcpy(sets->pool + sets->pooled, list, count * sizeof *list);
    sets->begins[sets->count] = sets->pooled;
    sets->pooled += count;
    sets->begins[++sets->count] = sets->pooled;
    return TT_OK;
}

/* The number of the list, which is added where it is new: then it is the largest. */
static uint32_t find_set(struct grammar_work *work, struct sets *sets, const uint32_t *list, size_t count)
{
    if (!grammar_spend(work, count + 2, 0)) return 0;
    if (2 * (sets->count + 1) > sets->slot_count) {
        tt_status status = widen(sets);
        if (status != TT_OK) {
            grammar_fail(work, status);
            return 0;
        }
    }
    size_t mask = sets->slot_count - 1, at = hash_list(list, count) & mask;
    for (; sets->slots[at] != 0; at = (at + 1) & mask) {
        size_t number = sets->slots[at] - 1, begin = sets->begins[number];
        bool same = sets->begins[number + 1] - begin == count &&
                    memcmp(sets->pool + begin, list, count * sizeof *list) == 0;
        if (same) return (uint32_t)number;
    }
    if (!grammar_spend(work, 0, count * sizeof *list + 16)) return 0;
    tt_status status = append(sets, list, count);
    if (status != TT_OK) {
        grammar_fail(work, status);
        return 0;
    }
    sets->slots[at] = (uint32_t)sets->count;
    return (uint32_t)(sets->count - 1);
}

/* ---- Subset construction ---- */

struct subset {
    struct grammar_work *work;
    const struct nfa *nfa;
    uint32_t end;
    uint32_t *first; /* [states + 1], of the edges of each state */
    const struct nfa_edge **edges;
    uint32_t *list, *mark; /* the set that is made; [states], the number of the set that has it */
    size_t count;
    uint32_t marks;
    struct sets sets;
};

static bool order_edges(struct subset *s)
{
    const struct nfa *nfa = s->nfa;
    s->first = tt_calloc((size_t)nfa->states + 2, sizeof *s->first);
    s->edges = tt_calloc(nfa->count + 1, sizeof *s->edges);
    s->list = tt_calloc((size_t)nfa->states + 1, sizeof *s->list);
    s->mark = tt_calloc((size_t)nfa->states + 1, sizeof *s->mark);
    if (s->first == NULL || s->edges == NULL || s->list == NULL || s->mark == NULL) {
        grammar_fail(s->work, TT_ERR_MEMORY);
        return false;
    }
    for (size_t i = 0; i < nfa->count; i++) s->first[nfa->edges[i].from + 2]++;
    for (uint32_t i = 0; i < nfa->states; i++) s->first[i + 1] += s->first[i];
    for (size_t i = 0; i < nfa->count; i++) s->edges[s->first[nfa->edges[i].from + 1]++] = &nfa->edges[i];
    return true;
}

static void add_to_set(struct subset *s, uint32_t state)
{
    if (s->mark[state] == s->marks) return;
    s->mark[state] = s->marks;
    s->list[s->count++] = state;
}

static int compare_states(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Completes the set by empty edges, and gives its number; DFA_DEAD for the empty set. */
static uint32_t close_set(struct subset *s)
{
    if (s->count == 0) return DFA_DEAD;
    for (size_t i = 0; i < s->count; i++) {
        uint32_t state = s->list[i];
        for (uint32_t e = s->first[state]; e < s->first[state + 1]; e++)
            if (s->edges[e]->kind == NFA_EMPTY) add_to_set(s, s->edges[e]->to);
        if (!grammar_spend(s->work, 1 + s->first[state + 1] - s->first[state], 0)) return DFA_DEAD;
    }
    /* States that only lead on by empty edges say nothing of the set. */
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++) {
        uint32_t state = s->list[i];
        bool counts = state == s->end;
        for (uint32_t e = s->first[state]; e < s->first[state + 1] && !counts; e++)
            counts = s->edges[e]->kind != NFA_EMPTY;
        if (counts) s->list[kept++] = state;
    }
    if (kept == 0) return DFA_DEAD;
    qsort(s->list, kept, sizeof *s->list, compare_states);
    return find_set(s->work, &s->sets, s->list, kept);
}

static bool has_end(const struct subset *s, uint32_t number)
{
    for (size_t i = s->sets.begins[number]; i < s->sets.begins[number + 1]; i++)
        if (s->sets.pool[i] == s->end) return true;
    return false;
}

static uint32_t move(struct subset *s, uint32_t number, uint8_t byte)
{
    s->marks++;
    s->count = 0;
    for (size_t i = s->sets.begins[number]; i < s->sets.begins[number + 1]; i++) {
        uint32_t state = s->sets.pool[i];
        for (uint32_t e = s->first[state]; e < s->first[state + 1]; e++) {
            const struct nfa_edge *edge = s->edges[e];
            if (edge->kind == NFA_BYTES && edge->low <= byte && byte <= edge->high) add_to_set(s, edge->to);
        }
        if (!grammar_spend(s->work, 1 + s->first[state + 1] - s->first[state], 0)) return DFA_DEAD;
    }
    return close_set(s);
}

/* Bytes between the borders of the same edges are of one class; those outside of the alphabet of another one. */
static void class_bytes(const struct nfa *nfa, struct dfa *out)
{
    bool borders[257] = {true};
    uint32_t keys[256], key = 0;
    for (size_t i = 0; i < nfa->count; i++)
        if (nfa->edges[i].kind == NFA_BYTES)
            borders[nfa->edges[i].low] = borders[nfa->edges[i].high + 1] = true;
    for (int b = 0; b < 256; b++) {
        key += borders[b];
        keys[b] = nfa->work->alphabet[b] ? key : 0;
    }
    make_classes(keys, out);
}

static void run_subset(struct subset *s, uint32_t start, struct dfa *out)
{
    uint8_t member[256] = {0}; /* a byte of each class */
    bool outside[256] = {false};
    for (int b = 255; b >= 0; b--) {
        member[out->class_of[b]] = (uint8_t)b;
        outside[out->class_of[b]] = !s->work->alphabet[b];
    }
    s->marks = 1;
    add_to_set(s, start);
    if (close_set(s) == DFA_DEAD) return;
    for (uint32_t number = 0; number < s->sets.count && grammar_is_well(s->work); number++) {
        add_state(s->work, out, has_end(s, number));
        for (uint32_t c = 0; c < out->classes && grammar_is_well(s->work); c++) {
            if (outside[c]) continue;
            uint32_t to = move(s, number, member[c]);
            out->next[(size_t)number * out->classes + c] = to;
        }
    }
}

static bool same_column(const struct dfa *dfa, uint32_t a, uint32_t b)
{
    for (size_t s = 0; s < dfa->states; s++)
        if (dfa->next[s * dfa->classes + a] != dfa->next[s * dfa->classes + b]) return false;
    return true;
}

/* Makes one class of those that lead to the same states from everywhere: edges have more borders than that. */
static void merge_classes(struct grammar_work *work, struct dfa *dfa)
{
    uint64_t hashes[256] = {0};
    uint32_t merged[256], chosen[256], count = 0;
    size_t cells = (size_t)dfa->states * dfa->classes;
    if (!grammar_spend(work, cells / 4, 0)) return;
    for (size_t i = 0; i < cells; i++)
        hashes[i % dfa->classes] = (hashes[i % dfa->classes] ^ dfa->next[i]) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t c = 0; c < dfa->classes; c++) {
        uint32_t same = 0;
        while (same < count && (hashes[chosen[same]] != hashes[c] || !same_column(dfa, chosen[same], c)))
            same++;
        if (same == count) chosen[count++] = c;
        merged[c] = same;
    }
    for (size_t s = 0; s < dfa->states; s++)
        for (uint32_t c = 0; c < count; c++)
            dfa->next[s * count + c] = dfa->next[s * dfa->classes + chosen[c]];
    for (int b = 0; b < 256; b++) dfa->class_of[b] = (uint8_t)merged[dfa->class_of[b]];
    dfa->classes = count;
}

void dfa_of_nfa(const struct nfa *nfa, uint32_t start, uint32_t end, struct dfa *out)
{
    struct subset s = {.work = nfa->work, .nfa = nfa, .end = end};
    *out = (struct dfa){0};
    if (grammar_is_well(nfa->work) && order_edges(&s)) {
        class_bytes(nfa, out);
        run_subset(&s, start, out);
        dfa_trim(nfa->work, out);
        if (grammar_is_well(nfa->work) && out->states > 0) merge_classes(nfa->work, out);
    }
    tt_free(s.first);
    tt_free((void *)s.edges);
    tt_free(s.list);
    tt_free(s.mark);
    sets_deinit(&s.sets);
    if (!grammar_is_well(nfa->work)) dfa_deinit(out);
}

/* ---- Products ---- */

void dfa_combine(struct grammar_work *work, const struct dfa *a, const struct dfa *b, bool subtract,
                 struct dfa *out)
{
    struct sets pairs = {0};
    uint32_t keys[256], pair[2] = {0, b->states > 0 ? 0 : DFA_DEAD};
    uint8_t member[256] = {0};
    *out = (struct dfa){0};
    if (!grammar_is_well(work) || a->states == 0 || (b->states == 0 && !subtract)) return;
    for (int i = 0; i < 256; i++)
        keys[i] = (uint32_t)a->class_of[i] << 8 | (b->states > 0 ? b->class_of[i] : 0);
    make_classes(keys, out);
    for (int i = 255; i >= 0; i--) member[out->class_of[i]] = (uint8_t)i;
    find_set(work, &pairs, pair, 2);
    for (uint32_t number = 0; number < pairs.count && grammar_is_well(work); number++) {
        uint32_t x = pairs.pool[2 * (size_t)number], y = pairs.pool[2 * (size_t)number + 1];
        bool in_b = y != DFA_DEAD && b->accepts[y];
        add_state(work, out, a->accepts[x] && in_b != subtract);
        for (uint32_t c = 0; c < out->classes && grammar_is_well(work); c++) {
            pair[0] = dfa_step(a, x, member[c]);
            pair[1] = y == DFA_DEAD ? DFA_DEAD : dfa_step(b, y, member[c]);
            if (pair[0] == DFA_DEAD || (pair[1] == DFA_DEAD && !subtract)) continue;
            out->next[(size_t)number * out->classes + c] = find_set(work, &pairs, pair, 2);
        }
    }
    sets_deinit(&pairs);
    dfa_trim(work, out);
    if (!grammar_is_well(work)) dfa_deinit(out);
}

void dfa_repeat(struct grammar_work *work, const struct dfa *unit, int64_t min, int64_t max, struct dfa *out)
{
    *out = (struct dfa){.classes = unit->classes};
    memcpy(out->class_of, unit->class_of, sizeof out->class_of);
    if (!grammar_is_well(work) || (max >= 0 && min > max)) return;
    /* Copies of the unit; without a limit the last one repeats itself. */
    int64_t times = max >= 0 ? max : min + 1;
    if (unit->states == 0) times = 0;
    if (times > GRAMMAR_STEPS_MAX) times = GRAMMAR_STEPS_MAX; /* which is spent before */
    for (int64_t i = 0; i < times && grammar_is_well(work); i++) {
        uint32_t base = out->states, following = base + unit->states;
        if (max < 0 && i + 1 == times) following = base;
        for (uint32_t s = 0; s < unit->states && grammar_is_well(work); s++) {
            uint32_t at = add_state(work, out, s == 0 && i >= min);
            for (uint32_t c = 0; c < unit->classes && grammar_is_well(work); c++) {
                uint32_t to = unit->next[(size_t)s * unit->classes + c];
                if (to == DFA_DEAD) continue;
                out->next[(size_t)at * out->classes + c] = unit->accepts[to] ? following : base + to;
            }
        }
    }
    if (max >= 0 || times == 0) add_state(work, out, times >= min);
    dfa_trim(work, out);
    if (!grammar_is_well(work)) dfa_deinit(out);
}

void dfa_quote(struct grammar_work *work, const struct dfa *body, struct dfa *out)
{
    uint32_t keys[256];
    *out = (struct dfa){0};
    if (!grammar_is_well(work) || body->states == 0 || !work->alphabet['"']) return;
    for (int b = 0; b < 256; b++) keys[b] = b == '"' ? 256 : body->class_of[b];
    make_classes(keys, out);
    uint32_t quote = out->class_of['"'], begin = add_state(work, out, false), end = body->states + 1;
    if (grammar_is_well(work)) out->next[(size_t)begin * out->classes + quote] = 1;
    for (uint32_t s = 0; s < body->states && grammar_is_well(work); s++) {
        uint32_t at = add_state(work, out, false);
        if (!grammar_is_well(work)) break;
        uint32_t *row = out->next + (size_t)at * out->classes;
        for (int b = 0; b < 256; b++) {
            uint32_t to = dfa_step(body, s, (uint8_t)b); /* a quote: behind a backslash */
            if (to != DFA_DEAD) row[out->class_of[b]] = to + 1;
        }
        if (body->accepts[s]) row[quote] = end;
    }
    add_state(work, out, true);
    if (!grammar_is_well(work)) dfa_deinit(out);
}

/* ---- Trimming ---- */

/* Marks what reaches an accepting state: edges backwards, as lists by their target. */
static bool mark_living(struct grammar_work *work, const struct dfa *dfa, bool *lives)
{
    size_t cells = (size_t)dfa->states * dfa->classes, queued = 0;
    uint32_t *first = tt_calloc((size_t)dfa->states + 2, sizeof *first);
    uint32_t *from = tt_calloc(cells + 1, sizeof *from), *queue = tt_calloc(dfa->states, sizeof *queue);
    bool made = first != NULL && from != NULL && queue != NULL && grammar_spend(work, cells / 4, 0);
    for (size_t i = 0; i < cells && made; i++)
        if (dfa->next[i] != DFA_DEAD) first[dfa->next[i] + 2]++;
    for (uint32_t s = 0; s < dfa->states && made; s++) first[s + 1] += first[s];
    for (size_t i = 0; i < cells && made; i++)
        if (dfa->next[i] != DFA_DEAD) from[first[dfa->next[i] + 1]++] = (uint32_t)(i / dfa->classes);
    for (uint32_t s = 0; s < dfa->states && made; s++)
        if (dfa->accepts[s]) lives[s] = true, queue[queued++] = s;
    for (size_t i = 0; i < queued && made; i++)
        for (uint32_t e = first[queue[i]]; e < first[queue[i] + 1]; e++)
            if (!lives[from[e]]) lives[from[e]] = true, queue[queued++] = from[e];
    tt_free(first);
    tt_free(from);
    tt_free(queue);
    if (!made) grammar_fail(work, TT_ERR_MEMORY);
    return made;
}

void dfa_trim(struct grammar_work *work, struct dfa *dfa)
{
    if (!grammar_is_well(work) || dfa->states == 0) return;
    bool *lives = tt_calloc(dfa->states, sizeof *lives);
    uint32_t *number = tt_calloc(dfa->states, sizeof *number), kept = 0;
    if (lives == NULL || number == NULL) {
        grammar_fail(work, TT_ERR_MEMORY);
    } else if (mark_living(work, dfa, lives)) {
        for (uint32_t s = 0; s < dfa->states; s++) number[s] = lives[s] ? kept++ : DFA_DEAD;
        for (uint32_t s = 0; s < dfa->states; s++) {
            if (!lives[s]) continue;
            const uint32_t *row = dfa->next + (size_t)s * dfa->classes;
            uint32_t *moved = dfa->next + (size_t)number[s] * dfa->classes;
            for (uint32_t c = 0; c < dfa->classes; c++)
                moved[c] = row[c] == DFA_DEAD ? DFA_DEAD : number[row[c]];
            dfa->accepts[number[s]] = dfa->accepts[s];
        }
        bool begins = lives[0];
        dfa->states = kept;
        if (!begins) dfa_deinit(dfa);
    }
    tt_free(lives);
    tt_free(number);
}
