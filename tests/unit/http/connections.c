/* Which connection of a server ends for a new one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "http/connections.h"

enum { MOST = 8, HERE = 1 };

/* A line of an origin, HERE: this machine, that is `age` seconds old. */
static struct tt_http_line line_of(int origin, enum tt_http_stage stage, double age)
{
    return (struct tt_http_line){
        .origin = {(unsigned char)origin}, .local = origin == HERE, .stage = stage, .since = -age};
}

static void fill(struct tt_http_lines *lines, struct tt_http_line *made, size_t count, int origin,
                 enum tt_http_stage stage)
{
    for (size_t i = 0; i < count; i++) {
        made[i] = line_of(origin, stage, 100 - (double)i);
        assert_null(tt_http_lines_add(lines, &made[i]));
    }
}

static void oldest_idle(void **state)
{
    struct tt_http_lines lines;
    struct tt_http_line made[MOST], next = line_of(HERE, TT_HTTP_IDLE, 0),
                                    more = line_of(HERE, TT_HTTP_IDLE, 0);
    (void)state;
    assert_int_equal(tt_http_lines_init(MOST, &lines), TT_OK);
    fill(&lines, made, MOST, HERE, TT_HTTP_IDLE);
    made[0].stage = TT_HTTP_ANSWERED;
    made[1].stage = TT_HTTP_FETCHES;
    made[2].stage = TT_HTTP_SENDS;
    assert_ptr_equal(tt_http_lines_add(&lines, &next), &made[3]);
    assert_ptr_equal(tt_http_lines_add(&lines, &more), &made[4]); /* one that ends already ends no more */
    tt_http_lines_remove(&made[3]);
    tt_http_lines_remove(&made[4]);
    tt_http_lines_remove(&next);
    tt_http_lines_remove(&more);
    assert_null(tt_http_lines_add(&lines, &next));
    assert_null(tt_http_lines_add(&lines, &more));
    tt_http_lines_deinit(&lines);
}

/* Those that wait for their answers stay; the new one ends. */
static void all_busy(void **state)
{
    struct tt_http_lines lines;
    struct tt_http_line made[MOST], next = line_of(HERE, TT_HTTP_IDLE, 0);
    (void)state;
    assert_int_equal(tt_http_lines_init(MOST, &lines), TT_OK);
    fill(&lines, made, MOST, HERE, TT_HTTP_ANSWERED);
    assert_ptr_equal(tt_http_lines_add(&lines, &next), &next);
    assert_true(next.ends);
    tt_http_lines_deinit(&lines);
}

/* Other machines, busy or idle, leave two for this one. */
static void kept(void **state)
{
    enum { OTHERS = MOST - TT_HTTP_KEPT_FOR_LOOPBACK };
    struct tt_http_lines lines;
    struct tt_http_line made[OTHERS], far = line_of(2, TT_HTTP_IDLE, 0), near[3];
    (void)state;
    assert_int_equal(tt_http_lines_init(MOST, &lines), TT_OK);
    fill(&lines, made, OTHERS, 2, TT_HTTP_ANSWERED);
    assert_ptr_equal(tt_http_lines_add(&lines, &far), &far);
    tt_http_lines_remove(&far);
    fill(&lines, near, 2, HERE, TT_HTTP_IDLE);
    made[3].stage = TT_HTTP_IDLE;
    far = line_of(3, TT_HTTP_IDLE, 0);
    assert_ptr_equal(tt_http_lines_add(&lines, &far), &made[3]); /* no connection of this machine */
    near[2] = line_of(HERE, TT_HTTP_IDLE, 0);
    assert_ptr_equal(tt_http_lines_add(&lines, &near[2]), &near[0]);
    tt_http_lines_deinit(&lines);
}

static void smallest(void **state)
{
    struct tt_http_lines lines;
    struct tt_http_line first = line_of(2, TT_HTTP_IDLE, 0), next = line_of(2, TT_HTTP_IDLE, 0);
    (void)state;
    assert_int_equal(tt_http_lines_init(1, &lines), TT_OK);
    assert_null(tt_http_lines_add(&lines, &first));
    assert_ptr_equal(tt_http_lines_add(&lines, &next), &first);
    tt_http_lines_deinit(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_idle),
        cmocka_unit_test(all_busy),
        cmocka_unit_test(kept),
        cmocka_unit_test(smallest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
