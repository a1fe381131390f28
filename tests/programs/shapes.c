/* Loops of every shape, all with the same number and duration of iterations: compilers transform
 * them differently, but the counts must be equal. Arguments: the number of iterations and their
 * ms. */
#include "subject.h"

static double ms = 20;
static volatile double sink;

/* Bodies of loops; several, since a loop's iterations are distinguished by its calls. */
#define BODY(name, part)                                                                           \
    SHOWN void name(void)                                                                          \
    {                                                                                              \
        burn_ms(ms * (part));                                                                      \
        KEEP_FRAME();                                                                              \
    }
BODY(whole, 1)
BODY(first_half, 0.5)
BODY(second_half, 0.5)
BODY(case_0, 1)
BODY(case_1, 1)
BODY(case_2, 1)
BODY(otherwise, 1)
BODY(head, 1)
BODY(tail, 1)

/* Three loops deep, with calls beside each inner loop. */
SHOWN void nested(int count)
{
    for (int i = 0; i < count; i++) {
        head();
        for (int j = 0; j < count / 2; j++) {
            for (int k = 0; k < count / 3; k++)
                whole();
            tail();
        }
    }
    KEEP_FRAME();
}

/* The inner loop has one more iteration each time. */
SHOWN void triangular(int count)
{
    for (int i = 1; i <= count; i++) {
        head();
        for (int j = 0; j < i; j++)
            whole();
    }
    KEEP_FRAME();
}

/* Every third iteration ends early. */
SHOWN void skipping(int count)
{
    for (int i = 0; i < count; i++) {
        first_half();
        if (i % 3 == 1)
            continue;
        second_half();
    }
    KEEP_FRAME();
}

SHOWN void switching(int count)
{
    for (int i = 0; i < count; i++) {
        switch (i % 7) {
        case 0:
        case 5:
            case_0();
            break;
        case 1:
        case 2:
            case_1();
            break;
        case 3:
            case_2();
            break;
        default:
            otherwise();
        }
    }
    KEEP_FRAME();
}

/* A loop that is left in its middle. */
SHOWN void searching(int count)
{
    for (int i = 1;; i++) {
        first_half();
        if (i == count)
            break;
        second_half();
    }
    KEEP_FRAME();
}

SHOWN bool goes_on(int done, int count)
{
    burn_ms(ms / 2);
    KEEP_FRAME();
    return done < count;
}

/* The call in the condition belongs to the loop. */
SHOWN void asking(int count)
{
    int done = 0;
    while (goes_on(done, count)) {
        first_half();
        done++;
    }
    KEEP_FRAME();
}

/* Each of two iterations calls the function itself. */
SHOWN void recursive(int levels)
{
    for (int i = 0; i < 2; i++) {
        whole();
        if (levels > 1)
            recursive(levels - 1);
    }
    KEEP_FRAME();
}

static inline __attribute__((always_inline)) void inner(int count)
{
    for (int i = 0; i < count; i++) {
        first_half();
        second_half();
    }
}

/* The loop was written in another function. */
SHOWN void inlining(int count)
{
    inner(count);
    KEEP_FRAME();
}

/* No call stands beside the inner loop. */
SHOWN void perfect(int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < 3; j++)
            whole();
    KEEP_FRAME();
}

/* Its iterations are far shorter than any period; a compiler unrolls it, or makes vectors of it. */
SHOWN void summing(int count)
{
    static double values[1 << 14];
    double end_s = wall_s() + (double)count * ms * 1e-3;
    while (wall_s() < end_s) {
        double sum = 0;
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            sum += values[i] * 1.5;
        sink = sum;
    }
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 6;
    ms = argc > 2 ? atof(argv[2]) : 20;
    nested(count);
    triangular(count);
    skipping(count);
    switching(count);
    searching(count);
    asking(count);
    recursive(3);
    inlining(count);
    perfect(count);
    summing(count);
    return 0;
}
