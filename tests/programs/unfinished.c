/* A library that cannot be loaded whole: nothing has one of the functions that it asks for. What it asks
 * for besides makes it one whose constants are searched, which takes a while. */
double missing_everywhere(long turns);
int dl_iterate_phdr(int (*visit)(void *, unsigned long, void *), void *data);

const char constants[8 << 20] = {1};

double work_through_nothing(long turns)
{
    dl_iterate_phdr(0, 0);
    return missing_everywhere(turns) + constants[turns];
}
