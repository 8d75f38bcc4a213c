/* Comparison of fingerprints with those of the other processes, and with those of a checkpoint (fingerprint.h). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "launch/fingerprint.h"

enum { PARTS_PER_ROUND = 16, CHANGES_SHOWN = 6, HEX_DIGITS = 16 };

/* ---- Other processes ---- */

struct head {
    uint64_t sum, count;
    uint64_t hub; /* of the hub's sums, which a process need not know */
    char host[64], folder[192];
};

struct sent_part {
    char name[216];
    uint64_t quick, full;
    int64_t amount;
    int32_t role, there;
};

struct comparison {
    const struct tt_fingerprint *fingerprint;
    struct head head;
};

static struct head head_of(const struct tt_fingerprint *fingerprint)
{
    struct head head = {.count = fingerprint->count};
    for (size_t i = 0; i < fingerprint->count; i++) {
        const struct tt_fingerprint_part *part = &fingerprint->parts[i];
        if (part->role == TT_FINGERPRINT_HUB) head.hub = tt_crc64(head.hub, &part->quick, sizeof part->quick);
        head.sum = tt_crc64(head.sum, part->name, strlen(part->name) + 1);
        if (part->role == TT_FINGERPRINT_HUB) continue;
        head.sum = tt_crc64(head.sum, &part->quick, sizeof part->quick);
        head.sum = tt_crc64(head.sum, &part->full, sizeof part->full);
    }
    if (gethostname(head.host, sizeof head.host - 1) != 0) head.host[0] = '\0';
    if (getcwd(head.folder, sizeof head.folder) == NULL) head.folder[0] = '\0';
    return head;
}

static struct sent_part sent_of(const struct tt_fingerprint *fingerprint, size_t index)
{
    struct sent_part sent = {0};
    if (index >= fingerprint->count) return sent;
    const struct tt_fingerprint_part *part = &fingerprint->parts[index];
    snprintf(sent.name, sizeof sent.name, "%s", part->name);
    sent.quick = part->quick;
    sent.full = part->full;
    sent.amount = part->amount;
    sent.role = (int32_t)part->role;
    sent.there = 1;
    return sent;
}

static bool is_unknown(const struct sent_part *part)
{
    return part->there && part->role == TT_FINGERPRINT_HUB && part->quick == 0;
}

static bool same(const struct sent_part *a, const struct sent_part *b)
{
    bool known = !is_unknown(a) && !is_unknown(b);
    return a->there == b->there && (!known || (a->quick == b->quick && a->full == b->full)) &&
           strncmp(a->name, b->name, sizeof a->name) == 0;
}

/* "nodename (rank 3)", with the folder if both processes are on the same host. */
static void describe(const struct head *heads, int rank, const struct head *other, char *text, size_t bytes)
{
    const struct head *head = &heads[rank];
    bool same_host = strncmp(head->host, other->host, sizeof head->host) == 0;
    snprintf(text, bytes, "%.63s (rank %d%s%.191s)", head->host, rank, same_host ? ", in " : "",
             same_host ? head->folder : "");
}

static tt_status fail_different(const struct head *heads, int first, int rank, const struct sent_part *ours,
                                const struct sent_part *theirs)
{
    char here[300], there[300], amounts[80] = "";
    const char *nothing = "no further file";
    describe(heads, first, &heads[rank], here, sizeof here);
    describe(heads, rank, &heads[first], there, sizeof there);
    const char *unit = ours->role == TT_FINGERPRINT_ROWS ? "rows" : "bytes";
    if (ours->amount != theirs->amount)
        snprintf(amounts, sizeof amounts, ": %lld and %lld %s", (long long)ours->amount,
                 (long long)theirs->amount, unit);
    if (ours->there && theirs->there && strncmp(ours->name, theirs->name, sizeof ours->name) == 0)
        tt_fail(TT_ERR_DATA, "%.215s differs between %s and %s%s", ours->name, here, there, amounts);
    else
        tt_fail(TT_ERR_DATA, "the input files differ: %s has %.215s where %s has %.215s", here,
                ours->there ? ours->name : nothing, there, theirs->there ? theirs->name : nothing);
    tt_hint(
        "all processes of a run must read the same model, tokenizer, adapter and data: copy them again, or "
        "use a folder that all machines share");
    return TT_ERR_DATA;
}

/* Compares the part of every rank with that of rank 0, or of the first rank that knows it. */
static tt_status compare_part(const struct head *heads, int world_size, const struct sent_part *parts)
{
    int first = 0;
    for (int q = 1; q < world_size; q++) {
        const struct sent_part *ours = &parts[(size_t)first * PARTS_PER_ROUND];
        const struct sent_part *theirs = &parts[(size_t)q * PARTS_PER_ROUND];
        if (!same(ours, theirs)) return fail_different(heads, first, q, ours, theirs);
        if (is_unknown(ours)) first = q;
    }
    return TT_OK;
}

/* Reports the first part in which another rank differs from rank 0. All ranks see the same parts and find the same
 * difference. `equal`: only the hub's sums may differ. */
static tt_status find_difference(const struct tt_fingerprint *fingerprint, const struct head *heads,
                                 bool equal, struct tt_comm *comm, struct sent_part *parts)
{
    struct sent_part own[PARTS_PER_ROUND];
    int world_size = tt_comm_world_size(comm);
    uint64_t most = 0;
    for (int q = 0; q < world_size; q++) most = heads[q].count > most ? heads[q].count : most;
    for (uint64_t first = 0; first < most; first += PARTS_PER_ROUND) {
        for (size_t i = 0; i < PARTS_PER_ROUND; i++) own[i] = sent_of(fingerprint, (size_t)first + i);
        TT_TRY(tt_comm_host_all_gather(comm, own, parts, sizeof own));
        for (size_t i = 0; i < PARTS_PER_ROUND; i++) TT_TRY(compare_part(heads, world_size, &parts[i]));
    }
    return equal ? TT_OK : tt_fail(TT_ERR_DATA, "the input files of the processes differ");
}

static tt_status compare_rank(void *context, const struct tt_world_rank *rank)
{
    const struct comparison *comparison = context;
    int world_size = tt_comm_world_size(rank->comm);
    struct head *heads = tt_calloc((size_t)world_size, sizeof *heads);
    struct sent_part *parts = tt_calloc((size_t)world_size * PARTS_PER_ROUND, sizeof *parts);
    tt_comm_set_activity(rank->comm, "comparing the input files");
    tt_status status = tt_comm_agree(rank->comm, heads != NULL && parts != NULL ? TT_OK : TT_ERR_MEMORY);
    if (status == TT_OK)
        status = tt_comm_host_all_gather(rank->comm, &comparison->head, heads, sizeof *heads);
    bool equal = true, alike = true;
    for (int q = 1; q < world_size && status == TT_OK; q++) {
        equal &= heads[q].sum == heads[0].sum && heads[q].count == heads[0].count;
        alike &= heads[q].hub == heads[0].hub;
    }
    if (status == TT_OK && !(equal && alike))
        status = find_difference(comparison->fingerprint, heads, equal, rank->comm, parts);
    tt_free(heads);
    tt_free(parts);
    return tt_comm_agree(rank->comm, status);
}

tt_status tt_fingerprint_compare(const struct tt_fingerprint *fingerprint, struct tt_world *world)
{
    if (world->local_count == world->world_size) return TT_OK;
    struct comparison comparison = {fingerprint, head_of(fingerprint)};
    return tt_world_run(world, compare_rank, &comparison);
}

/* ---- Checkpoints ---- */

static bool is_kept(const struct tt_fingerprint_part *part)
{
    if (part->role == TT_FINGERPRINT_HUB) return part->quick != 0;
    return part->role != TT_FINGERPRINT_SETTING && part->role != TT_FINGERPRINT_ROWS &&
           part->role != TT_FINGERPRINT_CHECKPOINT;
}

static bool is_hub_sum(const char *name)
{
    return strncmp(name, TT_HUB_PART, sizeof TT_HUB_PART - 1) == 0;
}

static void format_sums(const struct tt_fingerprint *fingerprint, const struct tt_fingerprint_part *part,
                        char text[2 * HEX_DIGITS + 2])
{
    snprintf(text, 2 * HEX_DIGITS + 2, "%016llx", (unsigned long long)part->quick);
    if (fingerprint->full)
        snprintf(text + HEX_DIGITS, HEX_DIGITS + 2, " %016llx", (unsigned long long)part->full);
}

struct tt_json_value *tt_fingerprint_json(const struct tt_fingerprint *fingerprint)
{
    struct tt_json_value *object = tt_json_new_object();
    for (size_t i = 0; i < fingerprint->count; i++) {
        char sums[2 * HEX_DIGITS + 2];
        const struct tt_fingerprint_part *part = &fingerprint->parts[i];
        if (!is_kept(part)) continue;
        format_sums(fingerprint, part, sums);
        tt_json_set(object, part->name, tt_json_new_string(sums));
    }
    return tt_json_finish(object);
}

struct list {
    struct tt_str *text;
    int count;
};

static tt_status add_change(struct list *list, const char *name, const char *how)
{
    if (++list->count > CHANGES_SHOWN + 1) return TT_OK;
    if (list->count > CHANGES_SHOWN) return tt_str_append_text(list->text, "; ...");
    return tt_str_printf(list->text, "%s%s %s", list->count > 1 ? "; " : "", name, how);
}

/* True for the name of a part of the model: a checkpoint stores names, but no roles. */
static bool is_of_model(const char *name)
{
    static const char header[] = "the header of ", config[] = "'config.json'", tensor[] = "tensor ";
    bool adapter = strstr(name, "of 'adapter_model.safetensors'") != NULL;
    return !adapter && (is_hub_sum(name) || strncmp(name, header, sizeof header - 1) == 0 ||
                        strcmp(name, config) == 0 || strncmp(name, tensor, sizeof tensor - 1) == 0);
}

tt_status tt_fingerprint_changes(const struct tt_fingerprint *fingerprint, const struct tt_json_value *before,
                                 struct tt_str *broken, struct tt_str *changed)
{
    struct list lists[2] = {{changed, 0}, {broken, 0}};
    struct tt_json_value *now = tt_fingerprint_json(fingerprint);
    const struct tt_json_value *value;
    const char *name;
    tt_status status = now != NULL ? TT_OK : tt_fail(TT_ERR_MEMORY, "out of memory for fingerprints");
    for (size_t i = 0; i < fingerprint->count && status == TT_OK; i++) {
        char sums[2 * HEX_DIGITS + 2];
        const struct tt_fingerprint_part *part = &fingerprint->parts[i];
        if (!is_kept(part)) continue;
        const char *old = tt_json_text(tt_json_get(before, part->name));
        format_sums(fingerprint, part, sums);
        if (old == NULL && part->role == TT_FINGERPRINT_HUB) continue;
        size_t digits = old != NULL && strlen(old) == HEX_DIGITS ? HEX_DIGITS : strlen(sums);
        if (old == NULL || strncmp(old, sums, digits) != 0)
            status = add_change(&lists[is_of_model(part->name)], part->name,
                                old == NULL ? "is new" : "has changed");
    }
    for (size_t member = 0; tt_json_next_member(before, &member, &name, &value);) {
        if (status == TT_OK && !is_hub_sum(name) && tt_json_get(now, name) == NULL)
            status = add_change(&lists[is_of_model(name)], name, "is missing");
    }
    tt_json_release(now);
    return status;
}
