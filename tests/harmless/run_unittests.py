"""Runs unit tests and writes one line per test: run_unittests.py FILE TESTS [ID...]

TESTS is a module, or a folder in which all test_*.py are run; of these tests, those with an ID, if
any is given. FILE gets lines "id<TAB>outcome", each flushed at once: the results so far survive a
crash or a hang. Under MPI each rank writes a file of its own, FILE.<rank>.
"""

import os
import sys
import unittest

# Tests that need the network, much time, or a desktop are left out, as CPython's own runner does.
try:
    import test.support

    test.support.use_resources = []
except ImportError:
    pass

# Sockets between virtual machines: these tests wait for ever in a machine that has no peer.
LEFT_OUT = "VSOCK"

RANK_VARIABLES = ("PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")


class Outcomes(unittest.TextTestResult):
    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
        path = sys.argv[1] if rank is None else f"{sys.argv[1]}.{rank}"
        self.file = open(path, "w", buffering=1)
        self.failed_subtests = set()

    def note(self, test, outcome):
        self.file.write(f"{test.id()}\t{outcome}\n")

    def startTest(self, test):
        super().startTest(test)
        self.note(test, "unfinished")

    def addSuccess(self, test):
        super().addSuccess(test)
        if test.id() not in self.failed_subtests:
            self.note(test, "ok")

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, f"error {error[0].__name__}")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "unexpected success")

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.failed_subtests.add(test.id())
            self.note(test, "failed")


def load(name):
    if os.path.isdir(name):
        sys.path.insert(0, name)
        return unittest.defaultTestLoader.discover(name)
    return unittest.defaultTestLoader.loadTestsFromName(name)


def tests_of(suite, ids):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from tests_of(part, ids)
        elif LEFT_OUT not in part.id() and (not ids or part.id() in ids):
            yield part


if __name__ == "__main__":
    suite = unittest.TestSuite(tests_of(load(sys.argv[2]), set(sys.argv[3:])))
    result = unittest.TextTestRunner(verbosity=2, resultclass=Outcomes).run(suite)
    sys.exit(not result.wasSuccessful())
