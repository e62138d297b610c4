/* Included before the source of a test that shares its executable with others, where `main` is the name of the test. */
#ifndef TD_TESTS_UNIT_SUITE_H
#define TD_TESTS_UNIT_SUITE_H

int main(void);

#endif
