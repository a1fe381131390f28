/* Works, then changes to the directory in its argument, and ends there. */
#include "subject.h"

#include <sys/stat.h>
#include <unistd.h>

SHOWN void work_before_the_move(void)
{
    burn_ms(50);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : "elsewhere";
    work_before_the_move();
    if (mkdir(directory, 0777) != 0 || chdir(directory) != 0) {
        perror(directory);
        return 1;
    }
    printf("moves: in %s\n", directory);
    return 0;
}
