/* OpenMP's constructs, each with a result that is known. */
#include <omp.h>
#include <stdio.h>

static long fibonacci(int n) {
    if (n < 2)
        return n;
    long a, b;
#pragma omp task shared(a) if (n > 12)
    a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 12)
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

int main(void) {
    omp_set_num_threads(4);
    long sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (long i = 0; i < 20000000; i++)
        sum += i % 7;
    printf("static loop: %ld\n", sum);
    sum = 0;
#pragma omp parallel for schedule(dynamic, 1000) reduction(+ : sum)
    for (long i = 0; i < 20000000; i++)
        sum += i % 5;
    printf("dynamic loop: %ld\n", sum);
    long counted = 0;
#pragma omp parallel
    for (int i = 0; i < 20000; i++) {
#pragma omp critical
        counted++;
    }
    printf("critical: %ld\n", counted);
    omp_lock_t lock;
    omp_init_lock(&lock);
    long locked = 0;
#pragma omp parallel
    for (int i = 0; i < 20000; i++) {
        omp_set_lock(&lock);
        locked++;
        omp_unset_lock(&lock);
    }
    omp_destroy_lock(&lock);
    printf("lock: %ld\n", locked);
    long result = 0;
#pragma omp parallel
#pragma omp single
    result = fibonacci(27);
    printf("tasks: %ld\n", result);
    long nested = 0;
    omp_set_max_active_levels(2);
    for (int i = 0; i < 50; i++) {
#pragma omp parallel num_threads(2) reduction(+ : nested)
#pragma omp parallel num_threads(2) reduction(+ : nested)
        nested++;
    }
    printf("nested: %ld\n", nested);
    return 0;
}
