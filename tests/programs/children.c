/* Creates children in every way: fork, vfork and exec, posix_spawn, popen, system, and replaces
 * itself by exec twice. Prints the output and the statuses of the children; Plimsoll does not
 * measure the children, which must print nothing of it. */
#include "subject.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Compares the environment, which is equal in parent and child. Additions by a launcher or a
 * preload are not counted. */
static int settings(void)
{
    int count = 0;
    for (char **entry = environ; *entry; entry++)
        count += strncmp(*entry, "LD_PRELOAD=", 11) != 0 && strncmp(*entry, "PLIMSOLL_", 9) != 0;
    return count;
}

static const char *preload(void)
{
    return getenv("LD_PRELOAD");
}

static void print_status(const char *how, int status)
{
    if (WIFEXITED(status))
        printf("children: %s: exit %d\n", how, WEXITSTATUS(status));
    else
        printf("children: %s: signal %d\n", how, WTERMSIG(status));
    fflush(stdout);
}

static void wait_for(const char *how, pid_t child)
{
    int status = 0;
    pid_t ended = child < 0 ? -1 : waitpid(child, &status, 0);
    if (ended != child)
        printf("children: %s: no child, %s\n", how, strerror(errno));
    else
        print_status(how, status);
    fflush(stdout);
}

static void fork_children(void)
{
    pid_t child = fork();
    if (child == 0) {
        burn_ms(50); /* must not be sampled into the parent's report */
        exit(4);
    }
    wait_for("fork, exit 4", child);
    child = fork();
    if (child == 0)
        _exit(5);
    wait_for("fork, _exit 5", child);
    child = fork();
    if (child == 0)
        raise(SIGKILL);
    wait_for("fork, killed", child);
    child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(6);
        int status = 0;
        waitpid(grandchild, &status, 0);
        _exit(WEXITSTATUS(status) + 1);
    }
    wait_for("fork in a fork", child);
}

static void run_children(const char *self)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%d", settings());
    char *with = (char *)(preload() ? "preload" : "none");
    char *arguments[] = {(char *)self, (char *)"child", expected, with, NULL};
    pid_t child = vfork();
    if (child == 0) {
        execv(self, arguments);
        _exit(127);
    }
    wait_for("vfork and exec", child);
    int error = posix_spawn(&child, self, NULL, NULL, arguments, environ);
    wait_for("posix_spawn", error ? -1 : child);
    child = vfork();
    if (child == 0) {
        execl("/nowhere/at/all", "nowhere", NULL);
        _exit(errno == ENOENT ? 0 : 1);
    }
    wait_for("failed exec", child);
}

static void run_shells(void)
{
    print_status("system", system("exit 8"));
    for (int i = 0; i < 3; i++) {
        FILE *pipe = popen("echo from a shell; exit 9", "r");
        char line[64] = "";
        if (!pipe || !fgets(line, sizeof line, pipe))
            printf("children: popen failed\n");
        printf("children: popen: %s", line);
        print_status("popen", pipe ? pclose(pipe) : -1);
    }
}

static int storm(int forks)
{
    int ended = 0;
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(i % 7);
        int status = -1;
        if (child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == i % 7)
            ended++;
    }
    return ended;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "child") == 0) {
        bool same = settings() == atoi(argv[2]) &&
            strcmp(preload() ? "preload" : "none", argv[3]) == 0;
        printf("children: child with %s environment\n", same ? "the same" : "another");
        return 10;
    }
    if (argc == 3 && strcmp(argv[1], "chain") == 0) {
        int left = atoi(argv[2]);
        printf("children: exec chain, %d to go, pid %s\n", left,
               getenv("CHILDREN_PID") && atoi(getenv("CHILDREN_PID")) == getpid()
                   ? "kept" : "lost");
        fflush(stdout);
        if (left == 0)
            return 11;
        char next[16];
        snprintf(next, sizeof next, "%d", left - 1);
        execl(argv[0], argv[0], "chain", next, NULL);
        return 127;
    }
    fork_children();
    run_children(argv[0]);
    run_shells();
    printf("children: %d of 100 forks ended well\n", storm(100));
    burn_ms(50);
    fflush(stdout);
    char pid[32];
    snprintf(pid, sizeof pid, "%d", getpid());
    setenv("CHILDREN_PID", pid, 1);
    execl(argv[0], argv[0], "chain", "2", NULL);
    return 127;
}
