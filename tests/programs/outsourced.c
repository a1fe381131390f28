/* Rank 0 leaves work to shells and to a child, and writes by streams of the C library; all ranks
 * end an iteration together. A shell takes `ms`. */
#include "ranks.h"

#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 3, ITEM = 8, ITEMS = 4096, SMALL = 100 };

static double numbers[ITEMS];
static char command[64];

SHOWN void run_shell(void)
{
    if (system(command) != 0)
        exit(2);
    KEEP_FRAME();
}

/* Waits for a child for 5 ms. */
SHOWN void run_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct timespec time = {0, 5000000};
        nanosleep(&time, NULL);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        exit(2);
    KEEP_FRAME();
}

/* The first line is waited for; the second one then lies in the stream's buffer. */
SHOWN void ask_shell(void)
{
    FILE *pipe = popen("sleep 0.005; printf '7\\n8\\n'", "r");
    char line[16];
    for (int expected = 7; pipe && expected <= 8; expected++)
        if (!fgets(line, sizeof line, pipe) || atoi(line) != expected)
            exit(2);
    if (!pipe || pclose(pipe) != 0)
        exit(2);
    KEEP_FRAME();
}

/* The pipe holds less than is written: the last call ends when the shell reads. */
SHOWN void feed_shell(void)
{
    FILE *pipe = popen("cat > /dev/null", "w");
    for (int i = 0; pipe && i < LARGE; i++)
        if (fwrite(numbers, ITEM, ITEMS, pipe) != ITEMS)
            exit(2);
    if (!pipe || pclose(pipe) != 0)
        exit(2);
    KEEP_FRAME();
}

SHOWN void write_state(void)
{
    FILE *file = fopen("state.bin", "w+");
    if (!file)
        exit(2);
    for (int i = 0; i < LARGE; i++)
        if (fwrite(numbers, ITEM, ITEMS, file) != ITEMS)
            exit(2);
    for (int i = 0; i < SMALL; i++)
        if (fwrite(numbers, 1, 1, file) != 1)
            exit(2);
    fflush(file);
    rewind(file);
    double first = 1;
    if (fread(numbers, ITEM, ITEMS, file) != ITEMS || fread(&first, ITEM, 1, file) != 1 || first)
        exit(2);
    fclose(file);
    remove("state.bin");
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    snprintf(command, sizeof command, "sleep %.4f", parameters.ms * 1e-3);
    double shells_s = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < parameters.iterations; i++) {
        if (rank == 0) {
            double start_s = wall_s();
            run_shell();
            shells_s += wall_s() - start_s;
            run_child();
            ask_shell();
            feed_shell();
            write_state();
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    FILE *truth = rank == 0 ? open_truth("outsourced") : NULL;
    if (truth) {
        tell_number(truth, "shells_s", shells_s);
        close_truth(truth);
    }
    print_result("outsourced", add_up(parameters.iterations));
    MPI_Finalize();
    return 0;
}
