/* What the subjects call, and a main: for programs that are no libraries. */
#include <stdlib.h>

static volatile int last;
void work(int what) { last = what; }
int more(void) { return 0; }
int pick(int i) { return last + i; }
int main(void) { return last; }
