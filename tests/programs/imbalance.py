"""The last quarter of the ranks sleeps `factor` times longer in work_uneven(); the others wait for
them in MPI_Allreduce. As imbalance.c, in Python with mpi4py.
"""

import array
import json
import os
import sys
import time

from mpi4py import MPI


def work_even(ms):
    time.sleep(ms * 1e-3)


def work_uneven(ms, factor):
    time.sleep(ms * factor * 1e-3)


def write_truth(path, all_s, ranks, iterations, elapsed_s):
    works_s = [all_s[rank * iterations : (rank + 1) * iterations] for rank in range(ranks)]
    columns = list(zip(*works_s))
    first_slow = ranks - max(ranks // 4, 1)
    last = ranks - 1
    with open(path, "w") as file:
        json.dump(
            {
                "subject": "imbalance",
                "ranks": ranks,
                "iterations": iterations,
                "elapsed_s": elapsed_s,
                "expected_loss_s": sum(max(works) - sum(works) / ranks for works in columns),
                # Functions of a script are known from some versions of the interpreter.
                "cause": "work_uneven" if (3, 11) <= sys.version_info[:2] <= (3, 13) else None,
                "symptom": "MPI_Allreduce",
                "slow_ranks": str(last) if first_slow == last else f"{first_slow}-{last}",
                "work_s": [sum(works) for works in works_s],
            },
            file,
        )


def main():
    begin_s = time.monotonic()
    iterations, ms, factor = int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    slow = rank >= ranks - max(ranks // 4, 1)
    work_s = array.array("d")
    part, total = array.array("q", [0]), array.array("q", [0])
    checksum = 0
    for i in range(iterations):
        start_s = time.monotonic()
        work_even(ms)
        work_uneven(ms, factor if slow else 1)
        work_s.append(time.monotonic() - start_s)
        part[0] = (rank + 1) * (i + 1)
        world.Allreduce(part, total)
        checksum += total[0]
    all_s = array.array("d", bytes(8 * ranks * iterations if rank == 0 else 0))
    world.Gather(work_s, all_s if rank == 0 else None)
    if rank == 0:
        path = os.environ.get("SUBJECT_TRUTH")
        if path:
            write_truth(path, all_s, ranks, iterations, time.monotonic() - begin_s)
        print(f"imbalance: {ranks} ranks, {iterations} iterations, checksum {checksum}", flush=True)


main()
