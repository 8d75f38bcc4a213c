#include "io/pickle.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

/* A state dictionary of 10,000 tensors has some 300,000 values. */
enum { VALUES_MAX = 1 << 22, STACK_MAX = 1 << 20, MARKS_MAX = 200, TEXT_BYTES_MAX = 1 << 24 };
enum { BUFFER_BYTES = 1 << 14 };

/* Python's names of the opcodes (pickletools.py). */
enum {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_BINSTRING = 'T',
    OP_SHORT_BINSTRING = 'U',
    OP_BINUNICODE = 'X',
    OP_BINBYTES = 'B',
    OP_SHORT_BINBYTES = 'C',
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_EMPTY_DICT = '}',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_EMPTY_TUPLE = ')',
    OP_SETITEMS = 'u',
    OP_PROTO = 0x80,
    OP_NEWOBJ = 0x81,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_EMPTY_SET = 0x8f,
    OP_ADDITEMS = 0x90,
    OP_STACK_GLOBAL = 0x93,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
};

struct machine {
    int descriptor;
    const char *path;
    uint64_t offset, end; /* of the file: the bytes that the buffer gets next */
    size_t at, filled;
    struct tt_pickle *pickle;
    struct tt_pickle_value **stack, **memo;
    size_t depth, stack_capacity;
    size_t memo_capacity, memoized;
    size_t marks[MARKS_MAX]; /* depths */
    size_t mark_count;
    size_t values, elements;
    uint8_t buffer[BUFFER_BYTES];
};

static uint64_t position(const struct machine *machine)
{
    return machine->offset - machine->filled + machine->at;
}

static tt_status fail_at(const struct machine *machine, const char *what)
{
    return tt_fail(TT_ERR_DATA, "'%s': the pickle at byte %llu %s", machine->path,
                   (unsigned long long)position(machine), what);
}

/* ---- Bytes ---- */

static tt_status take(struct machine *machine, void *to, size_t bytes)
{
    char *out = to;
    while (bytes > 0) {
        if (machine->at == machine->filled) {
            uint64_t left = machine->end - machine->offset;
            size_t now = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
            if (now == 0) return fail_at(machine, "ends before its STOP");
            TT_TRY(tt_file_pread(machine->descriptor, machine->path, machine->buffer, now, machine->offset));
            machine->offset += now;
            machine->filled = now;
            machine->at = 0;
        }
        size_t have = machine->filled - machine->at, now = bytes < have ? bytes : have;
        memcpy(out, machine->buffer + machine->at, now);
        machine->at += now;
        out += now;
        bytes -= now;
    }
    return TT_OK;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static tt_status take_number(struct machine *machine, int bytes, uint64_t *out)
{
    uint8_t raw[8];
    TT_TRY(take(machine, raw, (size_t)bytes));
    *out = 0;
    for (int i = bytes - 1; i >= 0; i--) *out = *out << 8 | raw[i];
    return TT_OK;
}

static tt_status take_bytes(struct machine *machine, uint64_t bytes, char **out)
{
    if (bytes > TEXT_BYTES_MAX || bytes > machine->end - position(machine))
        return fail_at(machine, "has a text that is longer than the file or 16 MiB");
    *out = tt_arena_alloc(&machine->pickle->arena, (size_t)bytes + 1);
    if (*out == NULL) return TT_ERR_MEMORY;
    return take(machine, *out, (size_t)bytes);
}

/* A line of a global, without its end. */
static tt_status take_line(struct machine *machine, const char **out)
{
    char line[256];
    size_t bytes = 0;
    for (;;) {
        char c;
        TT_TRY(take(machine, &c, 1));
        if (c == '\n') break;
        if (c == '\0' || bytes == sizeof line - 1) return fail_at(machine, "names a global that is no name");
        line[bytes++] = c;
    }
    line[bytes] = '\0';
    *out = tt_arena_strdup(&machine->pickle->arena, line);
    return *out != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* ---- Values ---- */

static tt_status push(struct machine *machine, struct tt_pickle_value *value)
{
    if (machine->depth == STACK_MAX) return fail_at(machine, "needs a deeper stack than a model has");
    TT_TRY(tt_grow(&machine->stack, machine->depth, &machine->stack_capacity));
    machine->stack[machine->depth++] = value;
    return TT_OK;
}

static tt_status make(struct machine *machine, enum tt_pickle_kind kind, struct tt_pickle_value **out)
{
    if (++machine->values > VALUES_MAX) return fail_at(machine, "has more values than a model has");
    *out = tt_arena_alloc(&machine->pickle->arena, sizeof **out);
    if (*out == NULL) return TT_ERR_MEMORY;
    (*out)->kind = kind;
    return TT_OK;
}

static tt_status push_new(struct machine *machine, enum tt_pickle_kind kind, struct tt_pickle_value **out)
{
    TT_TRY(make(machine, kind, out));
    return push(machine, *out);
}

/* The depth of the newest mark: nothing below it may be taken. */
static size_t ground(const struct machine *machine)
{
    return machine->mark_count > 0 ? machine->marks[machine->mark_count - 1] : 0;
}

static tt_status pop(struct machine *machine, struct tt_pickle_value **out)
{
    if (machine->depth == ground(machine)) return fail_at(machine, "takes more values than it has");
    *out = machine->stack[--machine->depth];
    return TT_OK;
}

static tt_status top(struct machine *machine, struct tt_pickle_value **out)
{
    if (machine->depth == ground(machine)) return fail_at(machine, "takes more values than it has");
    *out = machine->stack[machine->depth - 1];
    return TT_OK;
}

/* The values above the newest mark, which ends with them; they stay valid until the next push. */
static tt_status pop_mark(struct machine *machine, struct tt_pickle_value ***items, size_t *count)
{
    if (machine->mark_count == 0) return fail_at(machine, "takes a mark that it has not set");
    size_t from = machine->marks[--machine->mark_count];
    *items = machine->stack != NULL ? machine->stack + from : NULL;
    *count = machine->depth - from;
    machine->depth = from;
    return TT_OK;
}

static tt_status add_items(struct machine *machine, struct tt_pickle_value *to,
                           struct tt_pickle_value *const *items, size_t count)
{
    machine->elements += count;
    if (machine->elements > VALUES_MAX) return fail_at(machine, "has more elements than a model has");
    if (count == 0) return TT_OK;
    size_t needed = to->list.count + count;
    if (needed > to->list.capacity) {
        size_t capacity = to->list.capacity * 2u > needed ? to->list.capacity * 2u : needed;
        struct tt_pickle_value **grown =
            tt_arena_alloc(&machine->pickle->arena, capacity * sizeof(struct tt_pickle_value *));
        if (grown == NULL) return TT_ERR_MEMORY;
        if (to->list.count > 0) memcpy(grown, to->list.items, to->list.count * sizeof *grown);
        to->list.items = grown;
        to->list.capacity = (uint32_t)capacity;
    }
    memcpy(to->list.items + to->list.count, items, count * sizeof *items);
    to->list.count = (uint32_t)needed;
    return TT_OK;
}

static tt_status make_tuple(struct machine *machine, struct tt_pickle_value *const *items, size_t count)
{
    struct tt_pickle_value *tuple;
    TT_TRY(make(machine, TT_PICKLE_LIST, &tuple));
    TT_TRY(add_items(machine, tuple, items, count));
    return push(machine, tuple);
}

static tt_status make_short_tuple(struct machine *machine, size_t count)
{
    if (machine->depth - ground(machine) < count) return fail_at(machine, "takes more values than it has");
    machine->depth -= count;
    return make_tuple(machine, machine->stack + machine->depth, count);
}

/* Adds to a list or set. Other containers are objects that nobody reads: their elements are dropped. */
static tt_status append(struct machine *machine, struct tt_pickle_value *const *items, size_t count)
{
    struct tt_pickle_value *list;
    TT_TRY(top(machine, &list));
    if (list->kind == TT_PICKLE_OBJECT) return TT_OK;
    if (list->kind != TT_PICKLE_LIST) return fail_at(machine, "appends to a value that is not a list");
    return add_items(machine, list, items, count);
}

static tt_status set_items(struct machine *machine, struct tt_pickle_value *const *items, size_t count)
{
    struct tt_pickle_value *dict;
    TT_TRY(top(machine, &dict));
    if (count % 2 != 0) return fail_at(machine, "sets a key without a value");
    if (dict->kind == TT_PICKLE_OBJECT) return TT_OK;
    if (dict->kind != TT_PICKLE_DICT)
        return fail_at(machine, "sets a key of a value that is not a dictionary");
    return add_items(machine, dict, items, count);
}

/* ---- Globals and objects ---- */

static tt_status read_global(struct machine *machine)
{
    struct tt_pickle_value *global;
    TT_TRY(push_new(machine, TT_PICKLE_GLOBAL, &global));
    TT_TRY(take_line(machine, &global->global.module));
    return take_line(machine, &global->global.name);
}

static tt_status stack_global(struct machine *machine)
{
    struct tt_pickle_value *module, *name, *global;
    TT_TRY(pop(machine, &name));
    TT_TRY(pop(machine, &module));
    if (tt_pickle_text(module) == NULL || tt_pickle_text(name) == NULL)
        return fail_at(machine, "names a global that is no name");
    TT_TRY(push_new(machine, TT_PICKLE_GLOBAL, &global));
    global->global.module = tt_pickle_text(module);
    global->global.name = tt_pickle_text(name);
    return TT_OK;
}

/* OrderedDict(), or OrderedDict of a list of pairs as Python 2 wrote it. */
static tt_status make_ordered_dict(struct machine *machine, const struct tt_pickle_value *arguments)
{
    struct tt_pickle_value *dict;
    TT_TRY(push_new(machine, TT_PICKLE_DICT, &dict));
    const struct tt_pickle_value *pairs = tt_pickle_at(arguments, 0);
    for (uint32_t i = 0; pairs != NULL && tt_pickle_at(pairs, i) != NULL; i++) {
        const struct tt_pickle_value *pair = tt_pickle_at(pairs, i);
        if (pair->kind != TT_PICKLE_LIST || pair->list.count != 2)
            return fail_at(machine, "makes an OrderedDict of what are no pairs");
        TT_TRY(add_items(machine, dict, pair->list.items, 2));
    }
    return TT_OK;
}

/* Functions that Python would call stay uncalled. */
static tt_status reduce(struct machine *machine)
{
    struct tt_pickle_value *callee, *arguments, *object;
    TT_TRY(pop(machine, &arguments));
    TT_TRY(pop(machine, &callee));
    if (arguments->kind != TT_PICKLE_LIST) return fail_at(machine, "has arguments that are no tuple");
    if (tt_pickle_is_global(callee, "collections", "OrderedDict"))
        return make_ordered_dict(machine, arguments);
    TT_TRY(push_new(machine, TT_PICKLE_OBJECT, &object));
    object->object.callee = callee;
    object->object.arguments = arguments;
    return TT_OK;
}

static tt_status store(struct machine *machine)
{
    struct tt_pickle_value *id, *stored;
    struct tt_pickle *pickle = machine->pickle;
    TT_TRY(pop(machine, &id));
    TT_TRY(push_new(machine, TT_PICKLE_STORED, &stored));
    stored->id = id;
    TT_TRY(tt_grow(&pickle->stored, pickle->stored_count, &pickle->stored_capacity));
    pickle->stored[pickle->stored_count++] = stored;
    return TT_OK;
}

/* ---- Memo ---- */

static tt_status memo_put(struct machine *machine, uint64_t index)
{
    struct tt_pickle_value *value;
    TT_TRY(top(machine, &value));
    if (index >= VALUES_MAX) return fail_at(machine, "has a memo of more values than a model has");
    if (index >= machine->memo_capacity) {
        size_t capacity =
            machine->memo_capacity * 2 > index ? machine->memo_capacity * 2 : (size_t)index + 64;
        struct tt_pickle_value **grown =
            tt_realloc(machine->memo, capacity, sizeof(struct tt_pickle_value *));
        if (grown == NULL) return TT_ERR_MEMORY;
        memset(grown + machine->memo_capacity, 0, (capacity - machine->memo_capacity) * sizeof *grown);
        machine->memo = grown;
        machine->memo_capacity = capacity;
    }
    machine->memo[index] = value;
    return TT_OK;
}

static tt_status memo_get(struct machine *machine, uint64_t index)
{
    if (index >= machine->memo_capacity || machine->memo[index] == NULL)
        return fail_at(machine, "reads a memo that it has not set");
    return push(machine, machine->memo[index]);
}

/* ---- Opcodes ---- */

static tt_status push_integer(struct machine *machine, int64_t integer)
{
    struct tt_pickle_value *value;
    TT_TRY(push_new(machine, TT_PICKLE_INTEGER, &value));
    value->integer = integer;
    return TT_OK;
}

static tt_status read_integer(struct machine *machine, int bytes)
{
    uint64_t number;
    TT_TRY(take_number(machine, bytes, &number));
    return push_integer(machine, bytes == 4 ? (int32_t)(uint32_t)number : (int64_t)number);
}

static tt_status read_long(struct machine *machine)
{
    uint64_t bytes;
    char *data;
    TT_TRY(take_number(machine, 1, &bytes));
    TT_TRY(take_bytes(machine, bytes, &data));
    if (bytes > 8) {
        struct tt_pickle_value *value;
        TT_TRY(push_new(machine, TT_PICKLE_HUGE, &value));
        value->text.data = data;
        value->text.bytes = (size_t)bytes;
        return TT_OK;
    }
    uint64_t number = bytes > 0 && (data[bytes - 1] & 0x80) != 0 ? UINT64_MAX : 0;
    for (size_t i = (size_t)bytes; i-- > 0;) number = number << 8 | (uint8_t)data[i];
    return push_integer(machine, (int64_t)number);
}

static tt_status read_real(struct machine *machine)
{
    uint8_t raw[8];
    uint64_t bits = 0;
    struct tt_pickle_value *value;
    TT_TRY(take(machine, raw, sizeof raw));
    for (int i = 0; i < 8; i++) bits = bits << 8 | raw[i];
    TT_TRY(push_new(machine, TT_PICKLE_REAL, &value));
    memcpy(&value->real, &bits, sizeof bits);
    return TT_OK;
}

static tt_status read_text(struct machine *machine, int length_bytes)
{
    uint64_t bytes;
    char *data;
    struct tt_pickle_value *value;
    TT_TRY(take_number(machine, length_bytes, &bytes));
    TT_TRY(take_bytes(machine, bytes, &data));
    TT_TRY(push_new(machine, TT_PICKLE_TEXT, &value));
    value->text.data = data;
    value->text.bytes = (size_t)bytes;
    return TT_OK;
}

static tt_status push_bool(struct machine *machine, bool truth)
{
    struct tt_pickle_value *value;
    TT_TRY(push_new(machine, TT_PICKLE_BOOL, &value));
    value->truth = truth;
    return TT_OK;
}

static tt_status set_mark(struct machine *machine)
{
    if (machine->mark_count == MARKS_MAX) return fail_at(machine, "is nested deeper than a model is");
    machine->marks[machine->mark_count++] = machine->depth;
    return TT_OK;
}

/* Opcodes that make a value from bytes of the pickle. */
static tt_status run_value(struct machine *machine, uint8_t op, bool *known)
{
    struct tt_pickle_value *value;
    switch (op) {
    case OP_NONE:
        return push_new(machine, TT_PICKLE_NONE, &value);
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        return push_bool(machine, op == OP_NEWTRUE);
    case OP_BININT:
        return read_integer(machine, 4);
    case OP_BININT1:
        return read_integer(machine, 1);
    case OP_BININT2:
        return read_integer(machine, 2);
    case OP_LONG1:
        return read_long(machine);
    case OP_BINFLOAT:
        return read_real(machine);
    case OP_BINUNICODE:
    case OP_BINBYTES:
    case OP_BINSTRING:
        return read_text(machine, 4);
    case OP_SHORT_BINUNICODE:
    case OP_SHORT_BINBYTES:
    case OP_SHORT_BINSTRING:
        return read_text(machine, 1);
    case OP_EMPTY_LIST:
    case OP_EMPTY_TUPLE:
    case OP_EMPTY_SET:
        return push_new(machine, TT_PICKLE_LIST, &value);
    case OP_EMPTY_DICT:
        return push_new(machine, TT_PICKLE_DICT, &value);
    case OP_GLOBAL:
        return read_global(machine);
    default:
        *known = false;
        return TT_OK;
    }
}

/* Opcodes that take the values above a mark. */
static tt_status run_marked(struct machine *machine, uint8_t op)
{
    struct tt_pickle_value **items;
    size_t count;
    TT_TRY(pop_mark(machine, &items, &count));
    if (op == OP_TUPLE) return make_tuple(machine, items, count);
    return op == OP_SETITEMS ? set_items(machine, items, count) : append(machine, items, count);
}

static tt_status run_numbered(struct machine *machine, uint8_t op)
{
    uint64_t number;
    bool is_long = op == OP_LONG_BINGET || op == OP_LONG_BINPUT;
    TT_TRY(take_number(machine, is_long ? 4 : 1, &number));
    return op == OP_BINGET || op == OP_LONG_BINGET ? memo_get(machine, number) : memo_put(machine, number);
}

static tt_status run_head(struct machine *machine, uint8_t op)
{
    uint64_t number;
    if (op == OP_FRAME) return take_number(machine, 8, &number);
    TT_TRY(take_number(machine, 1, &number));
    return number >= 2 && number <= 5 ? TT_OK
                                      : fail_at(machine, "is of a protocol that torch does not write");
}

static tt_status run_set(struct machine *machine, size_t count)
{
    if (machine->depth - ground(machine) < count + 1)
        return fail_at(machine, "takes more values than it has");
    machine->depth -= count;
    struct tt_pickle_value *const *items = machine->stack + machine->depth;
    return count == 2 ? set_items(machine, items, count) : append(machine, items, count);
}

static tt_status run_one(struct machine *machine, uint8_t op)
{
    struct tt_pickle_value *value;
    bool known = true;
    TT_TRY(run_value(machine, op, &known));
    if (known) return TT_OK;
    switch (op) {
    case OP_PROTO:
    case OP_FRAME:
        return run_head(machine, op);
    case OP_MARK:
        return set_mark(machine);
    case OP_TUPLE:
    case OP_SETITEMS:
    case OP_APPENDS:
    case OP_ADDITEMS:
        return run_marked(machine, op);
    case OP_TUPLE1:
        return make_short_tuple(machine, 1);
    case OP_TUPLE2:
        return make_short_tuple(machine, 2);
    case OP_TUPLE3:
        return make_short_tuple(machine, 3);
    case OP_APPEND:
        return run_set(machine, 1);
    case OP_SETITEM:
        return run_set(machine, 2);
    case OP_BINGET:
    case OP_LONG_BINGET:
    case OP_BINPUT:
    case OP_LONG_BINPUT:
        return run_numbered(machine, op);
    case OP_MEMOIZE:
        return memo_put(machine, machine->memoized++);
    case OP_STACK_GLOBAL:
        return stack_global(machine);
    case OP_REDUCE:
    case OP_NEWOBJ:
        return reduce(machine);
    case OP_BUILD:
        return pop(machine, &value); /* the state of an object, or attributes of a dictionary */
    case OP_BINPERSID:
        return store(machine);
    default:
        tt_fail(TT_ERR_DATA,
                "'%s': the pickle at byte %llu has the opcode 0x%02x, which torch.save does not write",
                machine->path, (unsigned long long)position(machine), op);
        return TT_ERR_DATA;
    }
}

static tt_status run(struct machine *machine)
{
    for (;;) {
        uint8_t op;
        TT_TRY(take(machine, &op, 1));
        if (op == OP_STOP) break;
        TT_TRY(run_one(machine, op));
    }
    if (machine->depth != 1 || machine->mark_count > 0)
        return fail_at(machine, "ends with more or less than one value");
    machine->pickle->root = machine->stack[0];
    return TT_OK;
}

tt_status tt_pickle_read(int descriptor, const char *path, uint64_t *offset, uint64_t end,
                         struct tt_pickle *pickle)
{
    struct machine *machine = tt_calloc(1, sizeof *machine);
    if (machine == NULL) return TT_ERR_MEMORY;
    *pickle = (struct tt_pickle){0};
    machine->descriptor = descriptor;
    machine->path = path;
    machine->offset = *offset;
    machine->end = end;
    machine->pickle = pickle;
    tt_status status = run(machine);
    if (status == TT_OK) *offset = position(machine);
    tt_free(machine->stack);
    tt_free(machine->memo);
    tt_free(machine);
    if (status != TT_OK) tt_pickle_deinit(pickle);
    return status;
}
