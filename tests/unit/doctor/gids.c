/* trimtab doctor: the GIDs of RoCE v2 in a made /sys, whole, empty and damaged; NCCL_IB_GID_INDEX; the verdict. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "doctor/doctor_impl.h"
#include "support/temporary.h"

#define LOCAL_GID "fe80:0000:0000:0000:0ac0:ebff:fe3d:ca54"
#define IPV4_GID "0000:0000:0000:0000:0000:ffff:0a6e:0021"
#define IPV6_GID "2001:0db8:0000:0000:0000:0000:0000:0007"
#define NO_GID "0000:0000:0000:0000:0000:0000:0000:0000"
#define V1 "IB/RoCE v1"
#define V2 "RoCE v2"

static char root[160];

static int make_root(void **state)
{
    (void)state;
    test_temporary(root, sizeof root, "trimtab-gids-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return tt_dir_remove(root) == TT_OK ? 0 : -1;
}

static void write_file(const char *folder, const char *name, const char *text, size_t bytes)
{
    char path[600];
    assert_int_equal(tt_dir_create(folder), TT_OK);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* A line of a file of port `port`, "mlx5_0/ports/1". */
static void put(const char *port, const char *folder, const char *name, const char *line)
{
    char path[400], text[200];
    snprintf(path, sizeof path, "%s/%s/%s", root, port, folder);
    snprintf(text, sizeof text, "%s\n", line);
    write_file(path, name, text, strlen(text));
}

static void make_port(const char *port, const char *layer)
{
    put(port, ".", "state", "4: ACTIVE");
    put(port, ".", "rate", "400 Gb/sec (4X NDR)");
    put(port, ".", "link_layer", layer);
}

static void add_gid(const char *port, const char *index, const char *type, const char *gid)
{
    put(port, "gid_attrs/types", index, type);
    put(port, "gid_attrs/ndevs", index, "eth5");
    put(port, "gids", index, gid);
}

/* The table of a usual port: v1 and v2 of the link's address and of an IPv4 address. */
static void add_usual(const char *port)
{
    add_gid(port, "0", V1, LOCAL_GID);
    add_gid(port, "1", V2, LOCAL_GID);
    add_gid(port, "2", V1, IPV4_GID);
    add_gid(port, "3", V2, IPV4_GID);
    put(port, "gids", "4", NO_GID); /* an entry without a type */
}

static struct tt_doctor_rank look(const char *set)
{
    struct tt_doctor_rank found = {0};
    tt_doctor_find_rdma(root, set, &found);
    return found;
}

static void empty(void)
{
    assert_int_equal(tt_dir_remove(root), TT_OK);
    assert_int_equal(tt_dir_create(root), TT_OK);
}

static void the_best_is_found(void **state)
{
    (void)state;
    empty();
    make_port("mlx5_0/ports/1", "Ethernet");
    add_usual("mlx5_0/ports/1");
    make_port("mlx5_1/ports/1", "InfiniBand");
    add_gid("mlx5_1/ports/1", "0", V1, LOCAL_GID);
    struct tt_doctor_rank found = look(NULL);
    assert_int_equal(found.rdma_active, 2);
    assert_int_equal(found.roce_ports, 1);
    assert_int_equal(found.gid_index, 3);
    assert_string_equal(found.gids, "mlx5_0 3 (10.110.0.33, eth5)");
    assert_string_equal(found.gid_set, "");
    assert_string_equal(found.gid_fault, "");

    /* A second port, with another index; "10" is after "9", not after "1". */
    make_port("mlx5_0/ports/2", "Ethernet");
    add_gid("mlx5_0/ports/2", "10", V2, IPV4_GID);
    add_gid("mlx5_0/ports/2", "9", V2, IPV4_GID);
    add_gid("mlx5_0/ports/2", "1", V2, IPV6_GID);
    found = look(NULL);
    assert_int_equal(found.rdma_ports, 3);
    assert_int_equal(found.gid_index, -1);
    assert_string_equal(found.gids, "mlx5_0 3 (10.110.0.33, eth5), mlx5_0:2 9 (10.110.0.33, eth5)");

    /* An inactive port is not looked at. */
    put("mlx5_0/ports/2", ".", "state", "1: DOWN");
    found = look(NULL);
    assert_int_equal(found.roce_ports, 1);
    assert_int_equal(found.gid_index, 3);

    empty();
    make_port("rocep1/ports/1", "Ethernet");
    add_gid("rocep1/ports/1", "5", V2, IPV6_GID);
    found = look(NULL);
    assert_string_equal(found.gids, "rocep1 5 (2001:db8::7, eth5)");
    assert_string_equal(found.gid_fault, "");
}

static void faults_of_ports(void **state)
{
    (void)state;
    empty();
    make_port("mlx5_0/ports/1", "Ethernet");
    struct tt_doctor_rank found = look(NULL);
    assert_string_equal(found.gids, "mlx5_0 none");
    assert_string_equal(found.gid_fault, "mlx5_0 has no GID of RoCE v2: give its interface an IP address");
    assert_int_equal(found.gid_index, -1);
    add_gid("mlx5_0/ports/1", "0", V1, IPV4_GID);
    assert_string_equal(look(NULL).gids, "mlx5_0 none");
    add_gid("mlx5_0/ports/1", "1", V2, LOCAL_GID);
    found = look(NULL);
    assert_int_equal(found.gid_index, 1);
    assert_string_equal(found.gid_fault,
                        "mlx5_0 has a link-local GID of RoCE v2 only: give its interface an IP address");
}

static void the_variable_is_checked(void **state)
{
    static const struct {
        const char *set, *fault;
    } cases[] = {
        {"3", ""},
        {"-1", ""},
        {"", ""},
        {"0", "NCCL_IB_GID_INDEX is 0, which is IB/RoCE v1 of a link-local address on mlx5_0"},
        {"1", "NCCL_IB_GID_INDEX is 1, which is RoCE v2 of a link-local address on mlx5_0"},
        {"2", "NCCL_IB_GID_INDEX is 2, which is IB/RoCE v1 of an IPv4 address on mlx5_0"},
        {"4", "NCCL_IB_GID_INDEX is 4, where mlx5_0 has nothing"},
        {"200", "NCCL_IB_GID_INDEX is 200, where mlx5_0 has nothing"},
        {"99999999999999999999", "NCCL_IB_GID_INDEX is '99999999999', which is no index"},
        {"three", "NCCL_IB_GID_INDEX is 'three', which is no index"},
        {"3 ", "NCCL_IB_GID_INDEX is '3 ', which is no index"},
        {"../../3", "NCCL_IB_GID_INDEX is '../../3', which is no index"},
    };
    (void)state;
    empty();
    make_port("mlx5_0/ports/1", "Ethernet");
    add_usual("mlx5_0/ports/1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_doctor_rank found = look(cases[i].set);
        assert_string_equal(found.gid_fault, cases[i].fault);
        assert_int_equal(found.gid_index, 3);
    }
}

/* Files that no kernel writes: cut, long, binary, folders. Nothing is found in them, and nothing else is lost. */
static void damaged_files(void **state)
{
    static const char *const gids[] = {"",
                                       "0000:0000:0000:0000:0000:ffff:0a6e:002",
                                       "0000:0000:0000:0000:0000:ffff:0a6e:00210",
                                       "0000:0000:0000:0000:0000:ffff:0a6e:00g1",
                                       "0000-0000:0000:0000:0000:ffff:0a6e:0021",
                                       "0000:0000:0000:0000:0000:ffff:0a6e:00:1",
                                       "::ffff:10.110.0.33",
                                       NO_GID,
                                       "0000:0000:0000:0000:0000:ffff:0000:0000"};
    (void)state;
    for (size_t i = 0; i < sizeof gids / sizeof *gids; i++) {
        empty();
        make_port("mlx5_0/ports/1", "Ethernet");
        add_gid("mlx5_0/ports/1", "0", V2, gids[i]);
        assert_string_equal(look(NULL).gids, "mlx5_0 none");
        add_gid("mlx5_0/ports/1", "7", V2, IPV4_GID);
        assert_int_equal(look(NULL).gid_index, 7);
    }
    add_gid("mlx5_0/ports/1", "0",
            "RoCE v2.1 and a line that is longer than all that a kernel would write there", IPV4_GID);
    put("mlx5_0/ports/1", "gid_attrs/types", "1x", V2);
    put("mlx5_0/ports/1", "gid_attrs/types", "-3", V2);
    put("mlx5_0/ports/1", "gid_attrs/types", "12345", V2);
    put("mlx5_0/ports/1", "gid_attrs/types/2", "folder", V2);
    put("mlx5_0/ports/1/gids", "2", "folder", IPV4_GID);
    assert_int_equal(look("2").gid_index, 7);
    assert_string_equal(look("2").gid_fault, "NCCL_IB_GID_INDEX is 2, where mlx5_0 has nothing");

    /* Random bytes in every file. */
    struct tt_rng rng = tt_rng_make(17);
    uint64_t at = 0;
    for (int i = 0; i < 300; i++) {
        static const char *const names[] = {"gids", "gid_attrs/types", "gid_attrs/ndevs"};
        char bytes[130], path[400];
        size_t count = (size_t)(tt_rng_u64(rng, at++) % sizeof bytes);
        for (size_t b = 0; b < count; b++) bytes[b] = (char)tt_rng_u64(rng, at++);
        snprintf(path, sizeof path, "%s/mlx5_0/ports/1/%s", root, names[i % 3]);
        write_file(path, i % 2 == 0 ? "0" : "9", bytes, count);
        struct tt_doctor_rank found = look("9");
        assert_int_equal(found.gid_index, 7);
        assert_string_equal(found.gids, "mlx5_0 7 (10.110.0.33, eth5)");
    }
}

/* More ports than the text has room for. */
static void many_ports(void **state)
{
    char port[80];
    (void)state;
    empty();
    for (int i = 0; i < 40; i++) {
        snprintf(port, sizeof port, "a_device_with_a_very_long_name_%d/ports/1", i);
        make_port(port, "Ethernet");
        add_gid(port, "3", V2, IPV4_GID);
    }
    struct tt_doctor_rank found = look("3");
    assert_int_equal(found.roce_ports, 40);
    assert_int_equal(found.gid_index, 3);
    assert_true(strlen(found.gids) < sizeof found.gids && strlen(found.rdma) < sizeof found.rdma);
    assert_string_equal(found.gid_fault, "");
}

/* Two machines of two ranks. `indices` and `set` of each machine. */
static struct tt_doctor_report two_machines(int first, int second, const char *set, const char *other_set)
{
    struct tt_doctor_report report = {.rank_count = 4};
    report.ranks = tt_calloc(4, sizeof *report.ranks);
    assert_non_null(report.ranks);
    for (int r = 0; r < 4; r++) {
        struct tt_doctor_rank *rank = &report.ranks[r];
        *rank = (struct tt_doctor_rank){
            .machine = r / 2, .local_rank = r % 2, .roce_ports = 1, .gid_index = r < 2 ? first : second};
        snprintf(rank->host, sizeof rank->host, "node-%d", r / 2);
        snprintf(rank->gids, sizeof rank->gids, "mlx5_0 %d (10.0.0.%d, eth5)", rank->gid_index, r / 2);
        snprintf(rank->gid_set, sizeof rank->gid_set, "%s", r < 2 ? set : other_set);
    }
    return report;
}

static void expect(struct tt_doctor_report report, enum tt_doctor_verdict verdict, const char *text)
{
    struct tt_doctor_check check = {0};
    assert_int_equal(tt_doctor_check_gids(&report, &check), TT_OK);
    assert_string_equal(tt_str_text(&check.text), text);
    assert_int_equal(check.verdict, verdict);
    tt_str_deinit(&check.text);
    tt_doctor_deinit(&report);
}

static void verdicts(void **state)
{
    (void)state;
#define PORTS(first, second)                                                                                 \
    "; GID indices of RoCE v2: node-0: mlx5_0 " #first " (10.0.0.0, eth5); node-1: mlx5_0 " #second          \
    " (10.0.0.1, eth5)"
    expect(two_machines(3, 3, "", ""), TT_DOCTOR_OK,
           PORTS(3, 3) "; NCCL before 2.21 needs NCCL_IB_GID_INDEX=3");
    expect(two_machines(3, 3, "3", "3"), TT_DOCTOR_OK, PORTS(3, 3) "; NCCL_IB_GID_INDEX agrees");
    expect(two_machines(3, 3, "3", "-1"), TT_DOCTOR_OK,
           PORTS(3, 3) "; NCCL before 2.21 needs NCCL_IB_GID_INDEX=3 on all ranks");
    expect(two_machines(3, 5, "", ""), TT_DOCTOR_OK,
           PORTS(3, 5) "; do not set NCCL_IB_GID_INDEX: NCCL 2.21 and later find them");
    expect(two_machines(3, 5, "3", "5"), TT_DOCTOR_OK, PORTS(3, 5) "; NCCL_IB_GID_INDEX agrees");
    struct tt_doctor_report report = two_machines(3, 5, "3", "3");
    for (int r = 2; r < 4; r++)
        snprintf(report.ranks[r].gid_fault, sizeof report.ranks[r].gid_fault, "NCCL_IB_GID_INDEX is 3");
    expect(report, TT_DOCTOR_WARNS,
           PORTS(3, 5) "; rank 2 on node-1: NCCL_IB_GID_INDEX is 3; unset NCCL_IB_GID_INDEX: NCCL 2.21 and "
                       "later find them");
    report = two_machines(3, 3, "1", "3");
    snprintf(report.ranks[0].gid_fault, sizeof report.ranks[0].gid_fault, "NCCL_IB_GID_INDEX is 1");
    expect(
        report, TT_DOCTOR_WARNS,
        PORTS(3, 3) "; rank 0 on node-0: NCCL_IB_GID_INDEX is 1; NCCL before 2.21 needs NCCL_IB_GID_INDEX=3");
    report = two_machines(3, 3, "", "");
    for (int r = 0; r < 4; r++) report.ranks[r].roce_ports = 0;
    expect(report, TT_DOCTOR_OK, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_is_found),
        cmocka_unit_test(faults_of_ports),
        cmocka_unit_test(the_variable_is_checked),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(many_ports),
        cmocka_unit_test(verdicts),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
