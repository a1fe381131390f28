/* Shapes of loops. Line comments name each function's loops: "loop NAME". */
#include <stdlib.h>

void work(int what);
int more(void);
int pick(int i);

void nested(int n) {
    for (int i = 0; i < n; i++) { /* loop nested.outer */
        work(1); /* call nested.first */
        for (int j = 0; j < n; j++) { /* loop nested.inner */
            work(2); /* call nested.second */
        }
        work(3); /* call nested.third */
    }
    work(4); /* call nested.fourth */
    work(5);
}

void triangular(int n) {
    for (int i = 0; i < n; i++) /* loop triangular.outer */
        for (int j = i; j < n; j++) /* loop triangular.middle */
            for (int k = i; k < j; k++) /* loop triangular.inner */
                work(i + j + k);
}

void skipping(int n) {
    for (int i = 0; i < n; i++) { /* loop skipping */
        work(1); /* call skipping.first */
        if (pick(i)) continue;
        work(2); /* call skipping.second */
    }
}

void leaving(int n) {
    for (int i = 0; i < n; i++) { /* loop leaving */
        work(1);
        if (pick(i)) break;
        if (pick(i + 1)) return;
        work(2);
    }
    work(3);
}

void conditional(void) {
    while (more()) { /* loop conditional */
        work(1);
    }
}

void switching(int n) {
    for (int i = 0; i < n; i++) { /* loop switching */
        switch (pick(i)) {
        case 0: work(10); break; /* call switching.zero */
        case 1: work(21); /* call switching.one */
        case 2: work(32); break; /* call switching.two */
        case 3: work(43); break;
        case 4: work(54); break;
        case 5: work(65); break;
        case 6: work(76); break;
        case 9: work(87); break; /* call switching.nine */
        default: abort();
        }
        work(100); /* call switching.after */
    }
}

int recursive(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) /* loop recursive */
        sum += recursive(i) + pick(sum);
    return sum;
}

void irreducible(int n) {
    int i = 0;
    if (n & 1) goto middle;
    do { /* loop irreducible */
        work(1);
    middle:
        work(2);
        i++;
    } while (i < n);
}

static inline __attribute__((always_inline)) void each(int n, int what) {
    for (int i = 0; i < n; i++) { /* loop each */
        work(what);
    }
}

void inlining(int n) {
    for (int i = 0; i < n; i++) { /* loop inlining */
        each(i, 5); /* call each */
        work(6);
    }
}

double vectorised(int n, const double *restrict a, double *restrict b) {
    double sum = 0;
    for (int i = 0; i < n; i++) { /* loop vectorised */
        b[i] = 2 * a[i] + b[i];
    }
    for (int i = 0; i < n; i++) sum += b[i]; /* loop summed */
    return sum;
}

void straight(void) {
    work(1);
    work(2);
}
