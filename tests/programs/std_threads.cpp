// Two threads of std::thread, created by a constructor. Each creates another thread.
#include "subject.h"

#include <thread>
#include <vector>

static double works_s[2], inner_s[2];

SHOWN static double timed_work(double ms)
{
    double start_s = wall_s();
    work_ms(ms);
    return wall_s() - start_s;
}

SHOWN static void work_inside(int number)
{
    inner_s[number] = timed_work(parameters.ms);
}

SHOWN static void work_outside(int number)
{
    std::thread inner(work_inside, number);
    works_s[number] = timed_work(2 * parameters.ms);
    inner.join();
}

class team {
public:
    SHOWN team()
    {
        for (int number = 0; number < 2; number++)
            threads.emplace_back(work_outside, number);
    }

    void join()
    {
        for (auto &thread : threads)
            thread.join();
    }

private:
    std::vector<std::thread> threads;
};

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    team team;
    team.join();
    FILE *file = open_truth("std_threads");
    if (file) {
        tell_number(file, "work_s", works_s[0] + works_s[1]);
        tell_number(file, "inner_s", inner_s[0] + inner_s[1]);
        close_truth(file);
    }
    puts("std_threads: 2 threads and one of each");
}
