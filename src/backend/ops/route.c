#include "backend/ops/route.h"

#include "backend/device_impl.h"

static void check_rule(struct tt_check *check, const struct tt_route_rule *rule, int64_t experts,
                       int64_t slots)
{
    int64_t each = rule->groups > 0 ? experts / rule->groups : experts;
    tt_check_that(check, experts >= 1 && experts <= TT_ROUTE_EXPERTS_MAX, "%lld experts are not in 1..%d",
                  (long long)experts, TT_ROUTE_EXPERTS_MAX);
    tt_check_that(check, slots >= 1 && slots <= experts && slots <= TT_ROUTE_SLOTS_MAX,
                  "%lld of %lld experts cannot be chosen", (long long)slots, (long long)experts);
    if (rule->groups == 0) return;
    tt_check_that(check,
                  rule->groups > 0 && rule->groups <= TT_ROUTE_GROUPS_MAX && experts % rule->groups == 0 &&
                      each >= 2,
                  "%lld experts are not in %d groups of two or more", (long long)experts, rule->groups);
    tt_check_that(check, rule->kept_groups >= 1 && rule->kept_groups <= rule->groups,
                  "%d of %d groups cannot be kept", rule->kept_groups, rule->groups);
    tt_check_that(check, slots <= rule->kept_groups * each, "%lld experts are not in %d groups of %lld",
                  (long long)slots, rule->kept_groups, (long long)each);
}

static void check_vector(struct tt_check *check, const char *name, tt_tensor x, unsigned types, int64_t count)
{
    if (tt_tensor_is_empty(x)) return;
    tt_check_shape(check, name, x, types, 1, TT_DIMS(count));
}

static void check_slots(struct tt_check *check, const char *name, tt_tensor x, unsigned types, tt_tensor ids)
{
    tt_check_like(check, name, x, types, "ids", ids);
    tt_check_contiguous(check, name, x);
}

/* Logits and ids, and what both directions know of them. */
static void check_choice(struct tt_check *check, const struct tt_route_rule *rule, tt_tensor logits,
                         tt_tensor ids, tt_tensor scale)
{
    tt_check_tensor(check, "logits", logits, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(check, "ids", ids, TT_TYPES_I32, 2, 2);
    tt_check_contiguous(check, "logits", logits);
    tt_check_contiguous(check, "ids", ids);
    if (check->status != TT_OK) return;
    tt_check_that(check, ids.dims[0] == logits.dims[0], "ids are of %lld tokens, logits of %lld",
                  (long long)ids.dims[0], (long long)logits.dims[0]);
    check_rule(check, rule, logits.dims[1], ids.dims[1]);
    check_vector(check, "scale", scale, TT_TYPES_F32, logits.dims[1]);
}

static void check_load(struct tt_check *check, tt_tensor load, int64_t experts)
{
    tt_check_shape(check, "load", load, TT_TYPES_F32, 2, TT_DIMS(2, experts));
    tt_check_contiguous(check, "load", load);
}

tt_status tt_route_forward(struct tt_stream *stream, const struct tt_route_forward_args *args)
{
    struct tt_check check = {.op = "route_forward"};
    check_choice(&check, &args->rule, args->logits_TX, args->ids_TS, args->scale_X);
    if (check.status != TT_OK) return check.status;
    check_vector(&check, "bias", args->bias_X, TT_TYPES_F32, args->logits_TX.dims[1]);
    check_slots(&check, "weights", args->weights_TS, TT_TYPES_F32, args->ids_TS);
    if (!tt_tensor_is_empty(args->load_2X)) check_load(&check, args->load_2X, args->logits_TX.dims[1]);
    tt_check_apart(&check, "ids", args->ids_TS, "logits", args->logits_TX);
    tt_check_apart(&check, "weights", args->weights_TS, "logits", args->logits_TX);
    tt_check_apart(&check, "weights", args->weights_TS, "ids", args->ids_TS);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_route_forward(stream, args);
}

tt_status tt_route_backward(struct tt_stream *stream, const struct tt_route_backward_args *args)
{
    struct tt_check check = {.op = "route_backward"};
    tt_tensor logits = args->logits_TX, dlogits = args->dlogits_TX;
    check_choice(&check, &args->rule, logits, args->ids_TS, args->scale_X);
    if (check.status != TT_OK) return check.status;
    check_slots(&check, "dweights", args->dweights_TS, TT_TYPES_F32, args->ids_TS);
    check_vector(&check, "dload", args->dload_X, TT_TYPES_F32, logits.dims[1]);
    tt_check_like(&check, "dlogits", dlogits, TT_TYPES_REAL, "logits", logits);
    tt_check_type(&check, "dlogits", dlogits, logits.dtype);
    tt_check_contiguous(&check, "dlogits", dlogits);
    tt_check_apart(&check, "dlogits", dlogits, "logits", logits);
    tt_check_apart(&check, "dlogits", dlogits, "dweights", args->dweights_TS);
    tt_check_apart(&check, "dlogits", dlogits, "ids", args->ids_TS);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_route_backward(stream, args);
}

tt_status tt_route_balance(struct tt_stream *stream, const struct tt_route_balance_args *args)
{
    struct tt_check check = {.op = "route_balance"};
    tt_check_tensor(&check, "dload", args->dload_X, TT_TYPES_F32, 1, 1);
    if (check.status != TT_OK) return check.status;
    check_load(&check, args->load_2X, args->dload_X.dims[0]);
    tt_check_that(&check, args->slots >= 1, "%lld slots of a token", (long long)args->slots);
    if (!tt_tensor_is_empty(args->loss))
        tt_check_shape(&check, "loss", args->loss, TT_TYPES_F64, 1, TT_DIMS(1));
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_route_balance(stream, args);
}
