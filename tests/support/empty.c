/* Keeps the support library non-empty; helpers for tests stand beside this file. */
extern int tt_test_support_present;
int tt_test_support_present = 1;
