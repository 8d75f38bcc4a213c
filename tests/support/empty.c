/* The source that the support library always has; a glob adds the other files of this folder. */
extern int tt_test_support_present;
int tt_test_support_present = 1;
