// As openmp_kinds.c in the manner of C++: regions in templates and members, their work in lambdas.
// HOW = static, dynamic, guided, even, serial, critical, convoy, tasks, regions, nested.
#include "teams.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

struct lock_of_a_scope {
    omp_lock_t *lock;
    explicit lock_of_a_scope(omp_lock_t *lock) : lock(lock) { omp_set_lock(lock); }
    ~lock_of_a_scope() { omp_unset_lock(lock); }
};

region shown, inner[2];
padded_s waited_s[MAX_TEAM];

SHOWN void work_item(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

void work_in(region *region, double factor)
{
    double start_s = wall_s();
    work_item(factor);
    add_work(region, start_s);
}

/* A grid with a cost for each of its cells. */
class grid {
public:
    explicit grid(std::vector<double> costs) : costs(std::move(costs)) {}

    template <typename Work> SHOWN void sweep_static(Work &&work)
    {
        begin_region(&shown, LINE_BELOW);
#pragma omp parallel for schedule(static)
        for (std::size_t i = 0; i < costs.size(); i++)
            work(costs[i]);
        end_region(&shown, omp_get_max_threads());
    }

    template <typename Work> SHOWN void sweep_dynamic(Work &&work)
    {
        begin_region(&shown, LINE_BELOW);
#pragma omp parallel for schedule(dynamic)
        for (std::size_t i = 0; i < costs.size(); i++)
            work(costs[i]);
        end_region(&shown, omp_get_max_threads());
    }

    template <typename Work> SHOWN void sweep_guided(Work &&work)
    {
        begin_region(&shown, LINE_BELOW);
#pragma omp parallel for schedule(guided)
        for (auto cost = costs.begin(); cost < costs.end(); ++cost)
            work(*cost);
        end_region(&shown, omp_get_max_threads());
    }

private:
    std::vector<double> costs;
};

std::vector<double> costs(std::size_t cells, std::size_t first, std::size_t end, double slow)
{
    std::vector<double> costs(cells, 1.0);
    for (std::size_t i = first; i < end; i++)
        costs[i] = slow;
    return costs;
}

SHOWN double work_alone()
{
    double start_s = wall_s();
    work_item(parameters.factor);
    return wall_s() - start_s;
}

SHOWN void work_together()
{
    begin_region(&shown, LINE_BELOW);
#pragma omp parallel
    work_in(&shown, 1);
    end_region(&shown, omp_get_max_threads());
}

SHOWN void update_one_by_one()
{
    work_item(1);
    KEEP_FRAME();
}

SHOWN void enter_critical()
{
    begin_region(&shown, LINE_BELOW);
#pragma omp parallel
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s(), inside_s = 0;
        try {
#pragma omp critical(table)
            {
                inside_s = wall_s();
                update_one_by_one();
            }
            throw i;
        } catch (int) {
            waited_s[omp_get_thread_num()].s += inside_s - start_s;
        }
        add_work(&shown, inside_s);
        work_in(&shown, 0.1);
    }
    end_region(&shown, omp_get_max_threads());
}

SHOWN void hold(omp_lock_t *lock, double factor)
{
    double start_s = wall_s();
    lock_of_a_scope scope(lock);
    double inside_s = wall_s();
    waited_s[omp_get_thread_num()].s += inside_s - start_s;
    work_item(factor);
    add_work(&shown, inside_s);
}

SHOWN void pass_locks()
{
    std::vector<omp_lock_t> locks(3);
    for (auto &lock : locks)
        omp_init_lock(&lock);
    begin_region(&shown, LINE_BELOW);
#pragma omp parallel
    for (int i = 0; i < parameters.iterations; i++)
        for (auto &lock : locks)
            hold(&lock, &lock == &locks[1] ? parameters.factor : 1);
    end_region(&shown, omp_get_max_threads());
    for (auto &lock : locks)
        omp_destroy_lock(&lock);
}

SHOWN void make_tasks(long tasks)
{
    begin_region(&shown, LINE_BELOW);
#pragma omp parallel
#pragma omp single
    for (long i = 0; i < tasks; i++) {
#pragma omp task
        busy_us(1);
    }
    end_region(&shown, omp_get_max_threads());
}

SHOWN void open_regions(long regions)
{
    for (long i = 0; i < regions; i++) {
        begin_region(&shown, LINE_BELOW);
#pragma omp parallel
        busy_us(1);
        end_region(&shown, omp_get_max_threads());
    }
}

template <int Depth> SHOWN void nest(int threads)
{
    region *mine = &inner[omp_get_thread_num()];
    if constexpr (Depth > 0) {
#pragma omp parallel num_threads(2)
        nest<Depth - 1>(threads);
    } else {
        begin_region(mine, LINE_BELOW);
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int i = 0; i < 2 * threads; i++)
            work_in(mine, i >= 2 * threads - 2 ? parameters.factor : 1);
        end_region(mine, threads);
    }
    KEEP_FRAME();
}

double mean_waited_s()
{
    double sum_s = 0;
    for (int t = 0; t < shown.threads; t++)
        sum_s += waited_s[t].s;
    return sum_s / shown.threads;
}

} // namespace

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    calibrate();
    begin_hybrid(&argc, &argv, MPI_THREAD_FUNNELED);
    const std::string how = parameters.how;
    const std::size_t threads = static_cast<std::size_t>(omp_get_max_threads());
    const std::size_t cells = 2 * threads;
    const double slow = parameters.factor;
    const long pieces = static_cast<long>(1000 * slow);
    verdict verdict = {"openmp_kinds", "openmp_kinds.cpp", "thread_imbalance", "work_item", nullptr,
                       0, 0, 0, 0, 0, nullptr, 0};
    auto work = [](double cost) { work_in(&shown, cost); };
    const std::map<std::string, std::function<void()>> kinds = {
        {"static", [&] { grid(costs(cells, cells - 2, cells, slow)).sweep_static(work); }},
        {"even", [&] { grid(costs(cells, 0, 0, 1)).sweep_static(work); }},
        {"dynamic", [&] { grid(costs(cells + 1, cells, cells + 1, slow)).sweep_dynamic(work); }},
        {"guided", [&] { grid(costs(8 * threads, 0, 4, 4 * slow)).sweep_guided(work); }},
        {"serial", [&] { work_together(); verdict.serial_s += work_alone(); }},
        {"critical", [] { enter_critical(); }},
        {"convoy", [] { pass_locks(); }},
        {"tasks", [&] { make_tasks(pieces); }},
        {"regions", [&] { open_regions(pieces); }},
        {"nested", [&] { nest<1>(static_cast<int>(threads)); }},
    };
    const auto kind = kinds.find(how);
    if (kind == kinds.end()) {
        fprintf(stderr, "openmp_kinds: no kind %s\n", how.c_str());
        return 2;
    }
    const bool locks = how == "critical" || how == "convoy";
    omp_set_max_active_levels(how == "nested" ? 2 : 1);
    long long checksum = 0;
    for (int i = 0; i < (locks ? 1 : parameters.iterations); i++) {
        kind->second();
        checksum += end_iteration(i);
    }
    const region *whole = &shown;
    if (how == "nested") {
        inner[0].instances += inner[1].instances;
        inner[0].imbalance_s = (inner[0].imbalance_s + inner[1].imbalance_s) / 2;
        whole = &inner[0];
    }
    verdict.loss_s = whole->imbalance_s;
    if (how == "dynamic" || how == "guided")
        verdict.schedule = how == "dynamic" ? "dynamic" : "guided";
    else if (how == "static" || how == "even" || how == "nested")
        verdict.schedule = "static";
    if (how == "even")
        verdict.loss = verdict.cause = nullptr;
    if (how == "serial") {
        verdict.loss = "serial_section";
        verdict.cause = "work_alone";
        verdict.loss_s = verdict.serial_s * (shown.threads - 1) / shown.threads;
    }
    if (locks) {
        verdict.loss = "lock_contention";
        verdict.cause = how == "convoy" ? "hold" : "update_one_by_one";
        verdict.loss_s = verdict.waited_s = mean_waited_s();
    }
    if (how == "tasks" || how == "regions") {
        verdict.loss = how == "tasks" ? "fine_grained_tasks" : "fine_grained_regions";
        verdict.cause = how == "tasks" ? "make_tasks" : "open_regions";
        verdict.pieces = static_cast<double>(pieces) * parameters.iterations;
        verdict.piece_s = verdict.pieces * 1e-6;
        verdict.loss_s = shown.elapsed_s - verdict.piece_s / (how == "tasks" ? shown.threads : 1);
    }
    write_hybrid_truth(&verdict, whole);
    print_hybrid_result("openmp_kinds", checksum);
    finish_hybrid();
}
