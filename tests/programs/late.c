/* Equal work up to the last collective; then the last quarter of the ranks works `factor` times
 * longer in work_late(), and the others wait in MPI_Finalize.
 *
 * No communication may follow that work, since the wait would move there from MPI_Finalize: each
 * rank writes its number to a file, and rank 0 reads the files after MPI_Finalize. */
#include "ranks.h"

#include <unistd.h>

SHOWN void work_even(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN void work_late(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

static const char *note_path(int of_rank, const char *suffix)
{
    static char path[2][4096];
    static int next;
    char *text = path[next++ % 2];
    snprintf(text, sizeof path[0], "%s.%d%s", getenv("SUBJECT_TRUTH"), of_rank, suffix);
    return text;
}

/* The file appears whole or not at all. */
static void leave_note(double work_s)
{
    FILE *note = fopen(note_path(rank, ".part"), "w");
    if (!note)
        return;
    fprintf(note, "%.9g", work_s);
    fclose(note);
    rename(note_path(rank, ".part"), note_path(rank, ""));
}

static double take_note(int of_rank)
{
    const char *path = note_path(of_rank, "");
    double work_s = -1;
    for (int attempt = 0; attempt < 500 && work_s < 0; attempt++) {
        FILE *note = fopen(path, "r");
        if (note) {
            if (fscanf(note, "%lf", &work_s) != 1)
                work_s = -1;
            fclose(note);
        } else {
            sleep_ms(10);
        }
    }
    unlink(path);
    if (work_s < 0)
        fprintf(stderr, "late: rank %d left no note\n", of_rank);
    return work_s;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        work_even();
        checksum += add_up(i);
    }
    double start_s = wall_s();
    work_late((rank >= first_slow_rank() ? parameters.factor : 1) * parameters.iterations);
    double work_s = wall_s() - start_s;
    double mine_s = wall_s() - begin_s;
    if (getenv("SUBJECT_TRUTH"))
        leave_note(work_s);
    print_result("late", checksum);
    MPI_Finalize();
    if (rank == 0 && getenv("SUBJECT_TRUTH")) {
        double *all_s = allocate((size_t)ranks, sizeof(double)), longest_s = 0;
        for (int r = 0; r < ranks; r++) {
            all_s[r] = take_note(r);
            longest_s = all_s[r] > longest_s ? all_s[r] : longest_s;
        }
        struct claim claim = {"late", "work_late", "MPI_Finalize",
                              range(first_slow_rank(), ranks - 1), parameters.iterations};
        write_gathered(&claim, all_s, 1, mine_s - work_s + longest_s);
    }
    return 0;
}
