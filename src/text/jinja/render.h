/* A rendering: its state, and the functions between the files of the interpreter. */
#ifndef TT_TEXT_JINJA_RENDER_H
#define TT_TEXT_JINJA_RENDER_H

#include "text/jinja/ast.h"

/* A frame that runs. */
struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_value *slots;
};

struct jinja_render {
    const struct tt_jinja *jinja;
    const struct tt_jinja_input *input;
    struct tt_arena arena;
    size_t memory;
    bool is_full;                /* the limit of memory is reached: no allocation failed */
    const struct jinja_node *at; /* where errors are reported */
    uint64_t steps;
    int depth, calls;
    struct jinja_value *context; /* by symbol: variables of the input, then global functions */
    struct jinja_writer *out;
    struct jinja_value captured; /* of JINJA_NODE_CAPTURED */
    struct tt_jinja_origin *origins;
    size_t origin_count, origin_capacity;
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was defined */
};

struct jinja_loop {
    struct jinja_render *render;
    const struct jinja_node *node;
    struct jinja_scope *outer;
    struct jinja_iterator source;
    struct jinja_scope test;
    struct jinja_value before, current, after;
    bool has_after, is_ended;
    bool passed;            /* the remaining elements have passed the condition */
    int64_t index0, length; /* length: -1 until asked for */
    bool has_changed_value;
    struct jinja_value changed_value;
};

/* Arguments of a call, evaluated. */
struct jinja_call {
    struct jinja_value *positional;
    size_t count;
    struct jinja_dict named;
};

/* TT_ERR_DATA with the place of the node that is evaluated. */
tt_status jinja_fail(struct jinja_render *render, const char *format, ...) TT_PRINTF(2, 3);
/* Zeroed memory of the rendering; NULL with the error record set. */
void *jinja_alloc(struct jinja_render *render, size_t bytes);
/* Counts work against the limit of steps. */
tt_status jinja_charge(struct jinja_render *render, size_t steps);

/* eval.c, compute.c, access.c */
tt_status jinja_eval(struct jinja_render *render, struct jinja_scope *scope, const struct jinja_node *node,
                     struct jinja_value *out);
tt_status jinja_binary(struct jinja_render *render, int op, const struct jinja_value *a,
                       const struct jinja_value *b, struct jinja_value *out);
tt_status jinja_negate(struct jinja_render *render, const struct jinja_value *a, bool negative,
                       struct jinja_value *out);
tt_status jinja_round(struct jinja_render *render, const struct jinja_value *value, int64_t precision,
                      char method, struct jinja_value *out);
/* value.name; `id` is the method of that name or -1. */
tt_status jinja_attribute(struct jinja_render *render, const struct jinja_value *value,
                          const struct jinja_text *name, int id, struct jinja_value *out);
tt_status jinja_item(struct jinja_render *render, const struct jinja_value *value,
                     const struct jinja_value *key, struct jinja_value *out);
/* Bounds that are NULL are absent. */
tt_status jinja_slice(struct jinja_render *render, const struct jinja_value *value,
                      const struct jinja_value *from, const struct jinja_value *to,
                      const struct jinja_value *step, struct jinja_value *out);
struct jinja_value jinja_undefined(const struct jinja_value *of, const struct jinja_text *name);
/* The error of using an undefined value. */
tt_status jinja_fail_undefined(struct jinja_render *render, const struct jinja_value *value);

/* call.c */
tt_status jinja_eval_arguments(struct jinja_render *render, struct jinja_scope *scope,
                               const struct jinja_arguments *arguments, struct jinja_call *call);
tt_status jinja_call(struct jinja_render *render, const struct jinja_value *callee, struct jinja_call *call,
                     struct jinja_value *out);
tt_status jinja_call_macro(struct jinja_render *render, const struct jinja_macro *macro,
                           struct jinja_call *call, struct jinja_value *out);
/* Binds arguments to `names` ("name,other"): found ones are set, others stay as they are. `least` are required. */
tt_status jinja_bind(struct jinja_render *render, const char *what, const struct jinja_call *call,
                     const char *names, size_t least, struct jinja_value *values);

/* exec.c, loop.c */
enum jinja_method_id {
    JINJA_METHOD_CYCLE,
    JINJA_METHOD_CHANGED
}; /* those that have no object to be found at */
enum jinja_flow { JINJA_FLOW_NEXT, JINJA_FLOW_BREAK, JINJA_FLOW_CONTINUE };
tt_status jinja_exec(struct jinja_render *render, struct jinja_scope *scope, const struct jinja_nodes *body,
                     enum jinja_flow *flow);
tt_status jinja_enter_frame(struct jinja_render *render, const struct jinja_frame *frame,
                            struct jinja_scope *parent, struct jinja_scope *scope);
/* The values that a frame begins with; parameters stay. */
void jinja_load_frame(struct jinja_render *render, const struct jinja_frame *frame,
                      struct jinja_scope *scope);
tt_status jinja_assign(struct jinja_render *render, struct jinja_scope *scope,
                       const struct jinja_node *target, const struct jinja_value *value);
tt_status jinja_exec_for(struct jinja_render *render, struct jinja_scope *scope,
                         const struct jinja_node *node, enum jinja_flow *flow);
tt_status jinja_loop_attribute(struct jinja_render *render, struct jinja_loop *loop,
                               const struct jinja_text *name, struct jinja_value *out);
tt_status jinja_loop_length(struct jinja_loop *loop, int64_t *length);
tt_status jinja_loop_call(struct jinja_render *render, struct jinja_loop *loop, bool cycle,
                          struct jinja_call *call, struct jinja_value *out);

/* functions.c */
enum jinja_function {
    JINJA_FUNCTION_RANGE,
    JINJA_FUNCTION_NAMESPACE,
    JINJA_FUNCTION_DICT,
    JINJA_FUNCTION_RAISE,
    JINJA_FUNCTION_STRFTIME,
    JINJA_FUNCTION_CYCLER,
    JINJA_FUNCTION_JOINER,
    JINJA_FUNCTION_LIPSUM,
    JINJA_FUNCTION_LOOP_CYCLE,
    JINJA_FUNCTION_LOOP_CHANGED,
};
bool jinja_global(const struct jinja_text *name, struct jinja_value *out);
tt_status jinja_call_function(struct jinja_render *render, const struct jinja_value *function,
                              struct jinja_call *call, struct jinja_value *out);

/* filters.c, tests.c, methods.c: by id */
tt_status jinja_apply_filter(struct jinja_render *render, int id, const struct jinja_value *value,
                             struct jinja_call *call, struct jinja_value *out);
tt_status jinja_apply_test(struct jinja_render *render, int id, const struct jinja_value *value,
                           struct jinja_call *call, bool *out);
tt_status jinja_call_method(struct jinja_render *render, int id, const struct jinja_value *self,
                            struct jinja_call *call, struct jinja_value *out);
/* Whether values of this type have the method of that id. */
bool jinja_has_method(const struct jinja_value *self, int id);
/* format.c: text % arguments */
tt_status jinja_percent(struct jinja_render *render, const struct jinja_value *text,
                        const struct jinja_value *arguments, struct jinja_value *out);
/* strftime.c */
tt_status jinja_strftime(struct jinja_render *render, struct tt_span format, struct jinja_value *out);

#endif
