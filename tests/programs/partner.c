/* Another program for the world of imbalance.c: the same, but for the name of the function that the
 * slow ranks work in. */
#define work_uneven work_of_partner
#include "imbalance.c"
