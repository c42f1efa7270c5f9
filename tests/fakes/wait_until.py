"""Waiting for what other processes do. Nothing else in the tests sleeps, unless tests/checks/sleep_exceptions.txt says why."""

import time

PATIENCE = 120  # seconds that a test looks before it fails: a machine may be busy; only a test that fails waits for all


def wait_until(condition, patience=PATIENCE):
    """Looks every 10 ms; returns the first true value of `condition`, or the last false one after `patience` seconds."""
    end = time.monotonic() + patience
    while True:
        found = condition()
        if found or time.monotonic() >= end:
            return found
        time.sleep(0.01)
