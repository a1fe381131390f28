/* Ranks that start shells while they work: system and popen from inside an MPI job. The shells
 * inherit the job's environment and belong to no rank; they must write nothing of their own. */
#include "ranks.h"

#include <sys/wait.h>

SHOWN void work_even(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN int ask_shell(void)
{
    FILE *pipe = popen("echo 12", "r");
    int answer = 0;
    if (!pipe || fscanf(pipe, "%d", &answer) != 1)
        answer = -1;
    if (pipe)
        pclose(pipe);
    int status = system("exit 3");
    return answer + (WIFEXITED(status) ? WEXITSTATUS(status) : -1000);
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        work_even();
        checksum += ask_shell() == 15 ? add_up(i) : -1;
    }
    print_result("libcalls", checksum);
    MPI_Finalize();
    return 0;
}
