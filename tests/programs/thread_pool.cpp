// A pool of threads without OpenMP: workers take items from a queue and wait on a condition
// variable while the queue is empty. HOW is the number of workers (3 if left out). In each
// iteration the initial thread works alone for `ms`, while all workers wait, and then gives every
// worker an item of `ms` times `factor`.
#ifdef SUBJECT_NO_MPI
#include "subject.h"
static int rank, ranks = 1;
static double begin_s;
#else
#include "ranks.h"
#endif

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace {

SHOWN void work_item()
{
    work_ms(parameters.ms * parameters.factor);
    KEEP_FRAME();
}

SHOWN void prepare_items()
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

class pool {
public:
    explicit pool(int workers) : works_s(workers), idle_s(workers)
    {
        for (int worker = 0; worker < workers; worker++)
            threads.emplace_back([this, worker] { run(worker); });
    }

    ~pool() { join(); }

    void join()
    {
        {
            std::lock_guard<std::mutex> guard(mutex);
            ends = true;
        }
        filled.notify_all();
        for (auto &thread : threads)
            if (thread.joinable())
                thread.join();
    }

    void submit(std::function<void()> item)
    {
        {
            std::lock_guard<std::mutex> guard(mutex);
            items.push_back(std::move(item));
            open++;
        }
        filled.notify_one();
    }

    SHOWN void wait()
    {
        std::unique_lock<std::mutex> guard(mutex);
        done.wait(guard, [this] { return open == 0; });
        KEEP_FRAME();
    }

    std::vector<double> works_s, idle_s;

private:
    SHOWN void run(int worker)
    {
        double start_s = wall_s();
        while (true) {
            std::unique_lock<std::mutex> guard(mutex);
            filled.wait(guard, [this] { return ends || !items.empty(); });
            if (items.empty())
                return;
            auto item = std::move(items.front());
            items.pop_front();
            guard.unlock();
            double begin_s = wall_s();
            idle_s[static_cast<std::size_t>(worker)] += begin_s - start_s;
            item();
            start_s = wall_s();
            works_s[static_cast<std::size_t>(worker)] += start_s - begin_s;
            guard.lock();
            if (--open == 0)
                done.notify_all();
        }
    }

    std::mutex mutex;
    std::condition_variable filled, done;
    std::deque<std::function<void()>> items;
    std::vector<std::thread> threads;
    int open = 0;
    bool ends = false;
};

} // namespace

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    const int workers = *parameters.how ? atoi(parameters.how) : 3;
#ifdef SUBJECT_NO_MPI
    begin_s = wall_s();
#else
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    begin_s = wall_s();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    double prepared_s = 0, waited_s = 0;
    long long checksum = 0;
    pool pool(workers);
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        prepare_items();
        prepared_s += wall_s() - start_s;
        for (int worker = 0; worker < workers; worker++)
            pool.submit(work_item);
        start_s = wall_s();
        pool.wait();
        waited_s += wall_s() - start_s;
        checksum += i;
#ifndef SUBJECT_NO_MPI
        checksum += add_up(i);
#endif
    }
    pool.join();
    FILE *file = rank == 0 ? open_truth("thread_pool") : nullptr;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "threads", workers + 1);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "prepared_s", prepared_s);
        tell_number(file, "waited_s", waited_s);
        tell_numbers(file, "work_s", pool.works_s.data(), workers);
        tell_numbers(file, "idle_s", pool.idle_s.data(), workers);
        close_truth(file);
    }
    if (rank == 0)
        printf("thread_pool: %d ranks, %d workers, checksum %lld\n", ranks, workers, checksum);
#ifndef SUBJECT_NO_MPI
    MPI_Finalize();
#endif
}
