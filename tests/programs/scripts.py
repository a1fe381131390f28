"""Functions of a script: they call each other, directly, through native functions and through
generators. The truth has the time of each function.
"""

import json
import os
import sys
import time

measured = {"relax": 0.0, "compare": 0.0, "advance": 0.0}


def charge(function, begin_s):
    measured[function] += time.monotonic() - begin_s


class Solver:
    def relax(self, rounds):
        begin_s = time.monotonic()
        total = 0
        for i in range(rounds):
            total += i * i % 7
        charge("relax", begin_s)
        return total

    def descend(self, depth, rounds):
        if depth == 0:
            return self.relax(rounds)
        return self.descend(depth - 1, rounds)


def compare(value):
    begin_s = time.monotonic()
    for i in range(2000):
        value = value * 31 % 1009
    charge("compare", begin_s)
    return value


def steps(count):
    for step in range(count):
        begin_s = time.monotonic()
        for i in range(30000):
            step += i % 3
        charge("advance", begin_s)
        yield step


def main():
    begin_s, seconds = time.monotonic(), float(sys.argv[1])
    solver = Solver()
    while time.monotonic() - begin_s < seconds:
        for step in steps(5):
            solver.descend(5, 60000)
            sorted(range(step % 7, step % 7 + 10), key=compare)
    path = os.environ.get("SUBJECT_TRUTH")
    if path:
        with open(path, "w") as file:
            json.dump(
                {
                    "subject": "scripts",
                    "is_known": int((3, 11) <= sys.version_info[:2] <= (3, 13)),
                    **{f"{name}_s": value for name, value in measured.items()},
                },
                file,
            )


main()
