/* A library that comes and goes: it calls back into the program. */
double work_through_library(double (*work)(long), long turns)
{
    const double result = work(turns);
    __asm__ volatile("" ::: "memory");
    return result;
}
