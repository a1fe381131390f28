// A pool of std::thread in which each worker has a part of its own in each iteration, while the
// initial thread waits. HOW: "uneven" (the last worker's part takes `factor` times as long),
// "even", or "helper" (one worker has a part, and a thread of another function waits on a condition
// variable to the end). The truth has the workers' times of rank 0.
#ifdef SUBJECT_NO_MPI
#include "subject.h"
static int rank, ranks = 1;
static double begin_s;
#else
#include "ranks.h"
#endif

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

namespace {

SHOWN void work_part(bool slow)
{
    work_ms(slow ? parameters.ms * parameters.factor : parameters.ms);
    KEEP_FRAME();
}

class pool {
public:
    pool(int workers, bool uneven, bool helps) : works_s(workers), slow(uneven ? workers - 1 : -1)
    {
        for (int worker = 0; worker < workers; worker++)
            threads.emplace_back(&pool::serve, this, worker);
        if (helps)
            threads.emplace_back(&pool::help, this);
    }

    SHOWN void iterate()
    {
        std::unique_lock<std::mutex> guard(mutex);
        open = static_cast<int>(works_s.size());
        iteration++;
        begun.notify_all();
        done.wait(guard, [this] { return open == 0; });
        KEEP_FRAME();
    }

    void join()
    {
        {
            std::lock_guard<std::mutex> guard(mutex);
            ends = true;
        }
        begun.notify_all();
        for (auto &thread : threads)
            thread.join();
    }

    std::vector<double> works_s;

private:
    SHOWN void serve(int worker)
    {
        for (int seen = 0;; seen++) {
            {
                std::unique_lock<std::mutex> guard(mutex);
                begun.wait(guard, [&] { return iteration > seen || ends; });
                if (iteration == seen)
                    return;
            }
            double start_s = wall_s();
            work_part(worker == slow);
            works_s[static_cast<std::size_t>(worker)] += wall_s() - start_s;
            std::lock_guard<std::mutex> guard(mutex);
            if (--open == 0)
                done.notify_one();
        }
    }

    SHOWN void help()
    {
        std::unique_lock<std::mutex> guard(mutex);
        begun.wait(guard, [this] { return ends; });
        KEEP_FRAME();
    }

    const int slow;
    std::mutex mutex;
    std::condition_variable begun, done;
    std::vector<std::thread> threads;
    int iteration = 0, open = 0;
    bool ends = false;
};

} // namespace

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    const bool helps = strcmp(parameters.how, "helper") == 0;
    const bool uneven = strcmp(parameters.how, "uneven") == 0;
    const int workers = helps ? 1 : 4;
#ifdef SUBJECT_NO_MPI
    begin_s = wall_s();
#else
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    begin_s = wall_s();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    double waited_s = 0;
    long long checksum = 0;
    pool pool(workers, uneven, helps);
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        pool.iterate();
        waited_s += wall_s() - start_s;
        checksum += i;
#ifndef SUBJECT_NO_MPI
        checksum += add_up(i);
#endif
    }
    pool.join();
    FILE *file = rank == 0 ? open_truth("uneven_pool") : nullptr;
    if (file) {
        const std::vector<double> &works_s = pool.works_s;
        double mean_s = std::accumulate(works_s.begin(), works_s.end(), 0.0) / workers;
        tell_number(file, "ranks", ranks);
        tell_number(file, "threads", workers + helps + 1);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "waited_s", waited_s);
        tell_numbers(file, "work_s", works_s.data(), workers);
        tell_text(file, "loss", uneven ? "thread_imbalance" : nullptr);
        tell_text(file, "cause", uneven ? "work_part" : nullptr);
        tell_number(file, "expected_loss_s", uneven ? works_s.back() - mean_s : 0);
        close_truth(file);
    }
    if (rank == 0)
        printf("uneven_pool %s: %d ranks, checksum %lld\n", parameters.how, ranks, checksum);
#ifndef SUBJECT_NO_MPI
    MPI_Finalize();
#endif
}
