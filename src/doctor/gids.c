/* trimtab doctor: which entry of a port's table of addresses (GIDs) is RoCE v2, by /sys. NCCL from 2.21 on finds it;
 * before, and in other programs, NCCL_IB_GID_INDEX names it, one number for all ports. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "doctor/doctor_impl.h"

enum { FACT_BYTES = 64, GID_BYTES = 16, INDEX_DIGITS = 4, NAMED_MAX = 8 };

/* Kinds of GIDs, the most useful last. */
enum gid_kind { NO_ADDRESS, LINK_LOCAL, IPV6, IPV4 };

struct gid {
    int index; /* -1: there is none */
    bool is_v2;
    enum gid_kind kind;
    uint8_t bytes[GID_BYTES];
    char type[FACT_BYTES], interface[FACT_BYTES];
};

bool tt_doctor_fact(const char *folder, const char *name, char text[64])
{
    text[0] = '\0';
    if (!tt_cgroup_read_line(folder, name, text, FACT_BYTES)) text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text[0] != '\0';
}

/* -1: it is no number of an entry. */
static int parse_index(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > INDEX_DIGITS || text[digits] != '\0') return -1;
    int index = 0;
    for (; *text != '\0'; text++) index = 10 * index + (*text - '0');
    return index;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "fe80:0000:0000:0000:0ac0:ebff:fe3d:ca54": eight groups of four digits, as the kernel writes them. */
static bool parse_gid(const char *text, uint8_t bytes[GID_BYTES])
{
    if (strlen(text) != GID_BYTES / 2 * 5 - 1) return false;
    for (int i = 0; i < GID_BYTES; i++) {
        const char *at = text + 2 * i + i / 2;
        int high = hex_digit(at[0]), low = hex_digit(at[1]);
        if (high < 0 || low < 0 || (i % 2 == 1 && i < GID_BYTES - 1 && at[2] != ':')) return false;
        bytes[i] = (uint8_t)(16 * high + low);
    }
    return true;
}

static enum gid_kind kind_of(const uint8_t bytes[GID_BYTES])
{
    static const uint8_t zero[GID_BYTES], mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (memcmp(bytes, zero, sizeof zero) == 0) return NO_ADDRESS;
    if (memcmp(bytes, mapped, sizeof mapped) == 0)
        return memcmp(bytes + 12, zero, 4) == 0 ? NO_ADDRESS : IPV4;
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80 ? LINK_LOCAL : IPV6;
}

static void read_gid(const char *port, int index, struct gid *gid)
{
    char folder[600], number[16], text[FACT_BYTES];
    *gid = (struct gid){.index = index};
    snprintf(number, sizeof number, "%d", index);
    snprintf(folder, sizeof folder, "%s/gid_attrs/types", port);
    gid->is_v2 = tt_doctor_fact(folder, number, gid->type) && strcmp(gid->type, "RoCE v2") == 0;
    snprintf(folder, sizeof folder, "%s/gid_attrs/ndevs", port);
    (void)tt_doctor_fact(folder, number, gid->interface);
    snprintf(folder, sizeof folder, "%s/gids", port);
    if (tt_doctor_fact(folder, number, text) && parse_gid(text, gid->bytes)) gid->kind = kind_of(gid->bytes);
}

/* The first of RoCE v2 with the best kind of address. */
static struct gid find_gid(const char *port)
{
    struct gid best = {.index = -1}, gid;
    char types[600];
    snprintf(types, sizeof types, "%s/gid_attrs/types", port);
    struct tt_doctor_names *all = tt_doctor_list(types);
    for (size_t i = 0; all != NULL && i < all->count; i++) {
        int index = parse_index(all->names[i]);
        if (index < 0) continue;
        read_gid(port, index, &gid);
        if (!gid.is_v2 || gid.kind == NO_ADDRESS) continue;
        if (gid.kind > best.kind || (gid.kind == best.kind && gid.index < best.index)) best = gid;
    }
    tt_free(all);
    return best;
}

static const char *address_of(const struct gid *gid, char text[INET6_ADDRSTRLEN])
{
    bool short_one = gid->kind == IPV4;
    const char *made =
        inet_ntop(short_one ? AF_INET : AF_INET6, gid->bytes + (short_one ? 12 : 0), text, INET6_ADDRSTRLEN);
    return made != NULL ? made : "";
}

/* The fault of the configured index. */
static void find_wrong_index(const char *name, const char *port, const struct gid *best, const char *set,
                             char *fault, size_t bytes)
{
    struct gid chosen;
    int index = parse_index(set);
    if (index < 0) {
        snprintf(fault, bytes, "NCCL_IB_GID_INDEX is '%.11s', which is no index", set);
        return;
    }
    read_gid(port, index, &chosen);
    if (chosen.is_v2 && chosen.kind == best->kind) return;
    if (chosen.type[0] == '\0' || chosen.kind == NO_ADDRESS)
        snprintf(fault, bytes, "NCCL_IB_GID_INDEX is %d, where %.30s has nothing", index, name);
    else
        snprintf(fault, bytes, "NCCL_IB_GID_INDEX is %d, which is %.20s of %s on %.30s", index, chosen.type,
                 chosen.kind == LINK_LOCAL ? "a link-local address"
                 : chosen.kind == IPV6     ? "an IPv6 address"
                                           : "an IPv4 address",
                 name);
}

static void find_fault(const char *name, const char *port, const struct gid *best, const char *set,
                       char *fault, size_t bytes)
{
    if (best->index < 0)
        snprintf(fault, bytes, "%.30s has no GID of RoCE v2: give its interface an IP address", name);
    else if (best->kind == LINK_LOCAL)
        snprintf(fault, bytes, "%.30s has a link-local GID of RoCE v2 only: give its interface an IP address",
                 name);
    else if (set[0] != '\0' && strcmp(set, "-1") != 0)
        find_wrong_index(name, port, best, set, fault, bytes);
}

void tt_doctor_find_gid(const char *name, const char *port, const char *set, struct tt_doctor_rank *found)
{
    char address[INET6_ADDRSTRLEN];
    const struct gid best = find_gid(port);
    size_t at = strlen(found->gids), room = sizeof found->gids - at;
    const char *between = at > 0 ? ", " : "";
    snprintf(found->gid_set, sizeof found->gid_set, "%s", set);
    if (best.index < 0)
        snprintf(found->gids + at, room, "%s%.30s none", between, name);
    else
        snprintf(found->gids + at, room, "%s%.30s %d (%s%s%.15s)", between, name, best.index,
                 address_of(&best, address), best.interface[0] != '\0' ? ", " : "", best.interface);
    if (found->roce_ports++ == 0) found->gid_index = best.index;
    if (found->gid_index != best.index) found->gid_index = -1;
    if (found->gid_fault[0] == '\0')
        find_fault(name, port, &best, set, found->gid_fault, sizeof found->gid_fault);
}

/* ---- The verdict ---- */

/* The index of all ports of all ranks; -1: they differ, or some have none. */
static int common_index(const struct tt_doctor_report *report)
{
    int index = -1;
    bool first = true;
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->roce_ports == 0) continue;
        if (first) index = rank->gid_index;
        if (index != rank->gid_index) return -1;
        first = false;
    }
    return index;
}

static bool is_set(const struct tt_doctor_rank *rank)
{
    return rank->gid_set[0] != '\0' && strcmp(rank->gid_set, "-1") != 0;
}

/* Whether NCCL_IB_GID_INDEX is set on none (0), some (1) or all (2) of the ranks that have such ports. */
static int count_set(const struct tt_doctor_report *report)
{
    int set = 0, all = 0;
    for (int r = 0; r < report->rank_count; r++) {
        if (report->ranks[r].roce_ports == 0) continue;
        all++;
        set += is_set(&report->ranks[r]);
    }
    return set == 0 ? 0 : set < all ? 1 : 2;
}

/* The ports of each machine, once. */
static tt_status describe_ports(const struct tt_doctor_report *report, struct tt_str *text)
{
    int named = 0;
    for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->roce_ports == 0 || rank->local_rank != 0) continue;
        TT_TRY(tt_str_printf(text, "%s %s: %s", named++ > 0 ? ";" : "", rank->host, rank->gids));
    }
    return TT_OK;
}

/* A fault that all ranks of a machine share is listed once. */
static tt_status describe_faults(const struct tt_doctor_report *report, struct tt_doctor_check *check)
{
    const struct tt_doctor_rank *last = NULL;
    int named = 0;
    for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->gid_fault[0] == 0) continue;
        if (last != NULL && last->machine == rank->machine && strcmp(last->gid_fault, rank->gid_fault) == 0)
            continue;
        last = rank;
        named++;
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(&check->text, "; rank %d on %s: %s", r, rank->host, rank->gid_fault));
    }
    return TT_OK;
}

tt_status tt_doctor_check_gids(const struct tt_doctor_report *report, struct tt_doctor_check *check)
{
    int index = common_index(report), set = count_set(report), ports = 0, faults = 0;
    for (int r = 0; r < report->rank_count; r++) {
        ports += report->ranks[r].roce_ports;
        faults += report->ranks[r].gid_fault[0] != 0;
    }
    if (ports == 0) return TT_OK;
    TT_TRY(tt_str_append_text(&check->text, "; GID indices of RoCE v2:"));
    TT_TRY(describe_ports(report, &check->text));
    TT_TRY(describe_faults(report, check));
    if (faults == 0 && set == 2) return tt_str_append_text(&check->text, "; NCCL_IB_GID_INDEX agrees");
    if (index < 0)
        return tt_str_printf(&check->text, "; %s NCCL_IB_GID_INDEX: NCCL 2.21 and later find them",
                             set == 0 ? "do not set" : "unset");
    return tt_str_printf(&check->text, "; NCCL before 2.21 needs NCCL_IB_GID_INDEX=%d%s", index,
                         set == 1 ? " on all ranks" : "");
}
