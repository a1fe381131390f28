/* A library that cannot be loaded whole: one of the functions that it imports does not exist. Its
 * other imports cause a search of its constants, which takes a while. */
double missing_everywhere(long turns);
int dl_iterate_phdr(int (*visit)(void *, unsigned long, void *), void *data);

const char constants[8 << 20] = {1};

double work_through_nothing(long turns)
{
    dl_iterate_phdr(0, 0);
    return missing_everywhere(turns) + constants[turns];
}
