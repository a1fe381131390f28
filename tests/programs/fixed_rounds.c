/* No MPI: a function that executes the same number of instructions on any machine of a kind.
 * First argument: rounds of its loop, in millions. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) void count_rounds(long rounds)
{
    for (long i = 0; i < rounds; i++)
        __asm__ volatile("" : "+r"(i));
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
    long millions = argc > 1 ? atol(argv[1]) : 1;
    count_rounds(millions * 1000000L);
    printf("fixed_rounds: %ld million rounds\n", millions);
    return 0;
}
